/* Values of PE_REDUCE, and how each combines vectors and scalars. */

#if !defined(PE_REDUCE)
#error "reduce.inc.h needs PE_REDUCE"
#endif

#define PE_REDUCE_SUM 1
#define PE_REDUCE_MAX 2
#define PE_REDUCE_MOMENTS 3
#define PE_REDUCE_MIN 4
#define PE_REDUCE_PROD 5

#if PE_REDUCE == PE_REDUCE_MAX
#define PE_NEUTRAL (-__builtin_inff())
#define PE_COMBINE(a, b) pe_maximum(a, b)
#define PE_COMBINE_FLOAT(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#elif PE_REDUCE == PE_REDUCE_MIN
#define PE_NEUTRAL __builtin_inff()
#define PE_COMBINE(a, b) pe_minimum(a, b)
#define PE_COMBINE_FLOAT(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#elif PE_REDUCE == PE_REDUCE_PROD
#define PE_NEUTRAL 1.0f
#define PE_COMBINE(a, b) ((a) * (b))
#define PE_COMBINE_FLOAT(a, b) ((a) * (b))
#else
#define PE_NEUTRAL 0.0f
#define PE_COMBINE(a, b) ((a) + (b))
#define PE_COMBINE_FLOAT(a, b) ((a) + (b))
#endif
