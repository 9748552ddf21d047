/* Transforms the filters of frozen weights for Winograd's method, once; parameters as in
 * winograd_filters.inc.h. */

#include "winograd_filters.inc.h"

#undef PE_FILTER_STEPS
#undef PE_PLANES
#undef PE_POINTS
#include "undef.inc.h"
