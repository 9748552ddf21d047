/* Ends a sum that is split over threads: adds up their parts, then runs the epilogue.
 *
 * Parameters: PE_OUT_ROWS, PE_OUT_C rows and columns; PE_PART_FLOATS from one thread's part to the
 * next's.
 */

PE_INLINE void PE_FN(add_parts)(pe_worker *w, const PE_FN(io) * io, const float *parts) {
    const int count = w->count < PE_THREADS ? w->count : PE_THREADS;
    const pe_range share = pe_split(w, PE_OUT_ROWS, 1);
    for (ptrdiff_t row = share.begin; row < share.end; row++) {
        for (int column = 0; column < PE_OUT_C; column += PE_VL) {
            const int lanes = PE_OUT_C - column < PE_VL ? PE_OUT_C - column : PE_VL;
            const float *part = parts + row * PE_OUT_C + column;
            pe_vf sum = pe_load_part(part, lanes);
            for (int i = 1; i < count; i++) {
                sum += pe_load_part(part + i * (ptrdiff_t)PE_PART_FLOATS, lanes);
            }
            PE_FN(store)(io, sum, row, column, lanes);
        }
    }
}
