/* Forgets what integer.inc.h and the templates that include it define. */
#undef PE_A
#undef PE_A_BYTES
#undef PE_A_ZERO
#undef PE_B
#undef PE_BACKWARD
#undef PE_B_BYTES
#undef PE_B_ZERO
#undef PE_KERNEL_W
#undef PE_LOAD_A
#undef PE_LOAD_B
#undef PE_NUMBER
#undef PE_OF_BYTES
#undef PE_ONE_A
#undef PE_SUMS
#undef PE_SUM_LANES
#undef PE_THREAD_WORDS
#include "undef.inc.h"
