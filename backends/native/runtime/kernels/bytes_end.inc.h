/* Undefines the macros of the byte-product templates. */
#undef PE_A_GROUP
#undef PE_A_PITCH
#undef PE_DEPTH
#undef PE_L
#undef PE_LANE
#undef PE_ORDER
#undef PE_P
#undef PE_PANEL_BYTES
#undef PE_ROWS_BYTES
#undef PE_ROWS_FIRST
#undef PE_SHIFT
#undef PE_STRIP
#undef PE_TAP_BYTES
#undef PE_TAP_STEPS
#undef PE_TOGETHER
#include "integer_end.inc.h"
