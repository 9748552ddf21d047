/* Forgets the parameters of a kernel's template, so that the next kernel of the file starts clean.
 */
#undef PE_A_BATCH
#undef PE_A_ROW
#undef PE_A_STEP
#undef PE_BATCH
#undef PE_B_BATCH
#undef PE_B_PITCH
#undef PE_B_TRANSPOSED
#undef PE_FN
#undef PE_K
#undef PE_KB
#undef PE_M
#undef PE_MR
#undef PE_N
#undef PE_NR
#undef PE_NV
#undef PE_PANELS
#undef PE_PANEL_FLOATS
#undef PE_PARTIAL
#undef PE_PART_FLOATS
#undef PE_SPLIT
#undef PE_TAIL_COLUMNS
#undef PE_TAIL_LANES
#undef PE_TAIL_ROWS
#undef PE_TAIL_VECTORS
#undef PE_THREADS
#undef PE_VL
