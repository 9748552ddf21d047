/* Operands of a product of integers, or of integers and floats: how each is read.
 *
 * Sums are i32 of two i8 operands and f32 otherwise. Zero points are subtracted while an operand is
 * widened, so padding adds 0.
 *
 * Parameters:
 *   PE_FN, PE_VL             as in gemm_tile.inc.h
 *   PE_A_BYTES, PE_B_BYTES   1 for i8, 4 for f32
 *   PE_A_ZERO, PE_B_ZERO     zero points
 */

#if !defined(PE_A_BYTES) || !defined(PE_BACKWARD) || !defined(PE_B_BYTES)
#error "integer.inc.h needs PE_A_BYTES, PE_BACKWARD and PE_B_BYTES"
#endif

#if PE_A_BYTES == 1 && PE_B_BYTES == 1
#define PE_SUMS pe_vi
#define PE_NUMBER int32_t
#define PE_OF_BYTES(q) (q)
#define PE_SUM_LANES(v) pe_sum_i(v)
#else
#define PE_SUMS pe_vf
#define PE_NUMBER float
#define PE_OF_BYTES(q) pe_to_f(q)
#define PE_SUM_LANES(v) pe_sum(v)
#endif

#if PE_A_BYTES == 1
#define PE_A int8_t
#define PE_LOAD_A(p, n) PE_OF_BYTES(pe_load_part_sb(p, n) - PE_A_ZERO)
#define PE_ONE_A(x) ((PE_NUMBER)((x) - PE_A_ZERO))
#else
#define PE_A float
#define PE_LOAD_A(p, n) pe_load_part(p, n)
#define PE_ONE_A(x) (x)
#endif

#if PE_B_BYTES == 1
#define PE_B int8_t
#define PE_LOAD_B(p, n) PE_OF_BYTES(pe_load_part_sb(p, n) - PE_B_ZERO)
#else
#define PE_B float
#define PE_LOAD_B(p, n) pe_load_part(p, n)
#endif

/* The pixel that a tap of result pixel `at` reads, or -1 if there is none. */
PE_INLINE int PE_FN(source)(const int at, const int tap, const int step, const int gap,
                            const int before, const int size) {
#if PE_BACKWARD
    const int place = at + before - tap * gap, pixel = place / step;
    return place >= 0 && place % step == 0 && pixel < size ? pixel : -1;
#else
    const int pixel = at * step - before + tap * gap;
    return pixel >= 0 && pixel < size ? pixel : -1;
#endif
}
