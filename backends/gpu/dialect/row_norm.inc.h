/* A norm of each row of PE_COLUMNS numbers, one group per row; centered if PE_CENTERED is 1.
 * Reads x; writes y and rstd. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, PE_ITEMS);
    const int row = pe_group() * PE_COLUMNS;
    float mean = 0.0f, sum = 0.0f;
    if (PE_CENTERED) {
        for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
            sum += x[row + j];
        }
        mean = pe_group_sum(shared, pe_item(), PE_ITEMS, sum) * (1.0f / (float)PE_COLUMNS);
        pe_barrier();
    }
    sum = 0.0f;
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        const float d = x[row + j] - mean;
        sum += d * d;
    }
    sum = pe_group_sum(shared, pe_item(), PE_ITEMS, sum) * (1.0f / (float)PE_COLUMNS);
    const float scale = 1.0f / PE_MATH(sqrt)(sum + PE_EPS);
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        y[row + j] = (x[row + j] - mean) * scale;
    }
    if (pe_item() == 0) {
        rstd[pe_group()] = scale;
    }
}
