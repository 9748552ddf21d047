/* Cross entropy of rows of PE_COLUMNS logits; rows with the label PE_IGNORED are skipped.
 *
 * PE_STAGE 0: the loss of each row, one group per row, into scratch[row].
 * PE_STAGE 1: the mean of PE_ROWS losses, by one group.
 * PE_STAGE 2: the gradient of each row; it may overwrite the logits, as an item writes the elements
 * that it read.
 * A loss reads its logits once, a gradient twice, with coalesced accesses. A label out of range
 * makes the loss NaN. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(float, shared, 2 * PE_ITEMS);
#if PE_STAGE == 1
    float sum = 0.0f, count = 0.0f;
    for (int r = pe_item(); r < PE_ROWS; r += PE_ITEMS) {
        const int counted = labels[r] != PE_IGNORED;
        sum += counted ? scratch[r] : 0.0f;
        count += (float)counted;
    }
    sum = pe_group_sum(shared, pe_item(), PE_ITEMS, sum);
    pe_barrier();
    count = pe_group_sum(shared, pe_item(), PE_ITEMS, count);
    if (pe_item() == 0) {
        loss[0] = sum / count;
    }
#else
    const int row = pe_group() * PE_COLUMNS;
    const pe_i64 label = (pe_i64)labels[pe_group()];
    const int inside = label >= 0 && label < PE_COLUMNS;
    float most = -PE_INFINITY, sum = 0.0f;
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        pe_add_exponential(&most, &sum, logits[row + j]);
    }
    pe_group_exponentials(shared, pe_item(), PE_ITEMS, &most, &sum);
#if PE_STAGE == 0
    if (pe_item() == 0) {
        const float wanted = inside ? logits[row + (int)label] : PE_NAN;
        scratch[pe_group()] = PE_MATH(log)(sum) + most - wanted;
    }
#else
    pe_barrier();
    float count = 0.0f;
    for (int r = pe_item(); r < PE_ROWS; r += PE_ITEMS) {
        count += labels[r] != PE_IGNORED ? 1.0f : 0.0f;
    }
    count = pe_group_sum(shared, pe_item(), PE_ITEMS, count);
    const float scale = dy[0] / pe_maximum(count, 1.0f);
    for (int j = pe_item(); j < PE_COLUMNS; j += PE_ITEMS) {
        const float share = PE_MATH(exp)(logits[row + j] - most) / sum - (j == label ? 1.0f : 0.0f);
        dlogits[row + j] = label == PE_IGNORED ? 0.0f : inside ? share * scale : PE_NAN;
    }
#endif
#endif
}
