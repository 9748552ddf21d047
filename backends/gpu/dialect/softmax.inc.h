/* Softmax of each row, or its logarithm where PE_LOGARITHM is 1: PE_COLUMNS numbers by a group.
 * x and y are the pointers. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, PE_ITEMS);
    const int row = pe_group() * PE_COLUMNS;
    float most = -PE_INFINITY, sum = 0.0f;
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        most = pe_maximum(most, x[row + j]);
    }
    most = pe_group_max(shared, PE_ITEMS, most);
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        sum += PE_MATH(exp)(x[row + j] - most);
    }
    sum = pe_group_sum(shared, PE_ITEMS, sum);
    const float logarithm = PE_MATH(log)(sum);
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        const float shifted = x[row + j] - most;
        y[row + j] = PE_LOGARITHM ? shifted - logarithm : PE_MATH(exp)(shifted) / sum;
    }
}
