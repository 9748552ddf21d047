/* Softmax of each row, or its logarithm if PE_LOGARITHM is 1: one group per row of PE_COLUMNS
 * numbers, in two passes. x and y may be the same pointer: an item writes the elements it read. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, 2 * PE_ITEMS);
    const int row = pe_group() * PE_COLUMNS;
    float most = -PE_INFINITY, sum = 0.0f;
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        pe_add_exponential(&most, &sum, x[row + j]);
    }
    pe_group_exponentials(shared, pe_item(), PE_ITEMS, &most, &sum);
    const float logarithm = PE_MATH(log)(sum);
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        const float shifted = x[row + j] - most;
        y[row + j] = PE_LOGARITHM ? shifted - logarithm : PE_MATH(exp)(shifted) / sum;
    }
}
