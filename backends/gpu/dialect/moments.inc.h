/* Mean and variance of the elements of each result, in two passes. Macros are those of
 * reduce.inc.h, without PE_VALUES, PE_TYPE, PE_START and PE_COMBINE. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, PE_X *PE_Y);
    const int item = pe_item(), x = item % PE_X, y = item / PE_X;
    const int result = pe_group() * PE_X + x;
    float mean = 0.0f, sum = 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        sum = 0.0f;
        for (int q = y; q < PE_COUNT && result < PE_RESULTS; q += PE_Y) {
            PE_ELEMENTS(result, q)
            sum += pass ? (e0 - mean) * (e0 - mean) : e0;
        }
        shared[item] = sum;
        pe_barrier();
        for (int step = PE_X * PE_Y / 2; step >= PE_X; step /= 2) {
            if (item < step) {
                shared[item] += shared[item + step];
            }
            pe_barrier();
        }
        sum = shared[x] * (1.0f / (float)PE_COUNT);
        mean = pass ? mean : sum;
        pe_barrier();
    }
    if (y == 0 && result < PE_RESULTS) {
        PE_END(mean, sum, result)
    }
}
