/* What PE_REDUCE may be. */
#define PE_REDUCE_SUM 1
#define PE_REDUCE_MAX 2
#define PE_REDUCE_MOMENTS 3
