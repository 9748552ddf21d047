/* Reductions of many elements each, in a tree of fixed shape.
 *
 * PE_RESULTS, PE_COUNT  number of results, and of elements of each
 * PE_X, PE_Y            results of a group, and items per result; powers of two
 * PE_VALUES             1 or 2 numbers reduced together
 * PE_TYPE, PE_START     type and initial value of the numbers
 * PE_COMBINE(a, b)      combination of two numbers, such as their sum
 * PE_ELEMENTS(r, q)     statements that declare e0 and e1, element q of result r
 * PE_END(s0, s1, r)     statements that store result r
 */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(PE_TYPE, shared, PE_VALUES * PE_X * PE_Y);
    const int item = pe_item(), x = item % PE_X, y = item / PE_X;
    const int result = pe_group() * PE_X + x;
    PE_TYPE s0 = PE_START, s1 = PE_START;
    for (int q = y; q < PE_COUNT && result < PE_RESULTS; q += PE_Y) {
        PE_ELEMENTS(result, q)
        s0 = PE_COMBINE(s0, e0);
        s1 = PE_COMBINE(s1, e1);
    }
    shared[item] = s0;
    if (PE_VALUES > 1) {
        shared[PE_VALUES * PE_X * PE_Y - PE_X * PE_Y + item] = s1;
    }
    pe_barrier();
    for (int step = PE_X * PE_Y / 2; step >= PE_X; step /= 2) {
        if (item < step) {
            for (int v = 0; v < PE_VALUES; v++) {
                const int at = v * PE_X * PE_Y + item;
                shared[at] = PE_COMBINE(shared[at], shared[at + step]);
            }
        }
        pe_barrier();
    }
    if (y == 0 && result < PE_RESULTS) {
        s0 = shared[x];
        s1 = shared[(PE_VALUES - 1) * PE_X * PE_Y + x];
        PE_END(s0, s1, result)
    }
}
