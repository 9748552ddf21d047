/* The gradient of a norm of each row of PE_COLUMNS numbers, one group per row; centered
 * if PE_CENTERED is 1. Reads dy, y and rstd; writes dx. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, PE_ITEMS);
    const int row = pe_group() * PE_COLUMNS;
    float sum = 0.0f, product = 0.0f;
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        sum += dy[row + j];
        product += dy[row + j] * y[row + j];
    }
    sum = pe_group_sum(shared, pe_item(), PE_ITEMS, sum) * (1.0f / (float)PE_COLUMNS);
    pe_barrier();
    product = pe_group_sum(shared, pe_item(), PE_ITEMS, product) * (1.0f / (float)PE_COLUMNS);
    const float scale = rstd[pe_group()];
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        const float d = dy[row + j] - y[row + j] * product;
        dx[row + j] = (PE_CENTERED ? d - sum : d) * scale;
    }
}
