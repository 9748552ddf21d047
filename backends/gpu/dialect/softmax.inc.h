/* Softmax of each row, or its logarithm where PE_LOGARITHM is 1: PE_COLUMNS numbers by a group, in
 * two passes over them. x and y are the pointers, which may be one: an item writes what it read. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, 2 * PE_ITEMS);
    const int row = pe_group() * PE_COLUMNS;
    float most = -PE_INFINITY, sum = 0.0f;
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        pe_add_exponential(&most, &sum, x[row + j]);
    }
    pe_group_exponentials(shared, PE_ITEMS, &most, &sum);
    const float logarithm = PE_MATH(log)(sum);
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        const float shifted = x[row + j] - most;
        y[row + j] = PE_LOGARITHM ? shifted - logarithm : PE_MATH(exp)(shifted) / sum;
    }
}
