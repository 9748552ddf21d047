/* Halves converted as integers: a device may round its own conversions otherwise, or have none. */
PE_FUNCTION float pe_from_half(pe_half bits) {
    const pe_u32 sign = (pe_u32)(bits & 0x8000) << 16, size = bits & 0x7FFF;
    const float small = (float)size * 5.96046448e-8f;
    const pe_u32 large = (size << 13) + (size < 0x7C00 ? 0x38000000u : 0x70000000u);
    return pe_from_bits(sign | (size < 0x400 ? pe_bits(small) : large));
}

/* Rounds to nearest, ties to even. */
PE_FUNCTION pe_half pe_to_half(float x) {
    const pe_u32 size = pe_bits(x) & 0x7FFFFFFFu, sign = pe_bits(x) >> 16 & 0x8000u;
    const pe_u32 small = (pe_u32)PE_MATH(rint)(pe_from_bits(size) * 16777216.0f);
    const pe_u32 large = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;
    const pe_u32 none = size > 0x7F800000u ? 0x7E00u : 0x7C00u;
    return (pe_half)(sign | (size >= 0x47800000u ? none : size < 0x38800000u ? small : large));
}

#define pe_load_half(p, i) pe_from_half((p)[i])
#define pe_store_half(p, i, v) ((p)[i] = pe_to_half(v))
#define pe_rounded_half(v) pe_from_half(pe_to_half(v))
