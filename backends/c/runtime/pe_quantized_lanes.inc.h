/* Between real numbers and the integers that stand for them, on vectors of PE_VL lanes; pe_math.h
 * includes this file once for each width. The meaning is that of compiler/ops/quantized.py, bit for
 * bit. Limits are those of the results. */

PE_INLINE pe_vf pe_dequantize(pe_vi q, pe_vf scale, int32_t zero) {
    return pe_to_f(q - zero) * scale;
}

/* Adds the zero point to numbers that are brought between the limits first. */
PE_INLINE pe_vi pe_narrow_sb(pe_vi x, int32_t low, int32_t high, int32_t zero) {
    const pe_vi least = pe_splat_i(low - zero), most = pe_splat_i(high - zero);
    x = pe_select_i(x < least, least, x);
    return pe_select_i(x > most, most, x) + zero;
}

/* Halves round to even. */
PE_INLINE pe_vi pe_quantize(pe_vf x, pe_vf scale, int32_t low, int32_t high, int32_t zero) {
    return pe_narrow_sb(pe_saturate_i(pe_round(x / scale)), low, high, zero);
}

/* x multiplier 2^(exponent - 31): the upper half of the doubled product, rounded up from its half,
 * then a shift rounded away from zero from its half. */
PE_INLINE pe_vi pe_rescale(pe_vi x, pe_vi multiplier, pe_vi exponent) {
    const pe_vi left = pe_select_i(exponent > 0, exponent, exponent - exponent);
    const pe_vi right = left - exponent;
    const pe_vl product = pe_widen(x << left) * pe_widen(multiplier);
    const pe_vi high = pe_narrow((product + (1 << 30)) >> 31);
    const pe_vi mask = (1 << right) - 1;
    const pe_vi threshold = (mask >> 1) - (high < 0);
    return (high >> right) - ((high & mask) > threshold);
}
