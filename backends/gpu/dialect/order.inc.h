/* The order of PE_COUNT indices, equal ones as they stand, so that what is added up for one of them
 * lies together; by groups that read all indices in tiles. index is read; scratch is written: place
 * by place in that order, which index is there, and how many places from there on have one index,
 * 0 but at the first, and of what lies outside of PE_SIZE. */
PE_KERNEL void PE_NAME(PE_PARAMETERS) {
    PE_SHARED(pe_i64, tile, PE_ITEMS);
    const int own = pe_group() * PE_ITEMS + pe_item();
    const pe_i64 wanted = own < PE_COUNT ? (pe_i64)index[own] : -1;
    int smaller = 0, before = 0, equal = 0;
    for (int first = 0; first < PE_COUNT; first += PE_ITEMS) {
        const int count = PE_COUNT - first < PE_ITEMS ? PE_COUNT - first : PE_ITEMS;
        if (pe_item() < count) {
            tile[pe_item()] = (pe_i64)index[first + pe_item()];
        }
        pe_barrier();
        for (int e = 0; e < count; e++) {
            smaller += tile[e] < wanted;
            before += tile[e] == wanted && first + e < own;
            equal += tile[e] == wanted;
        }
        pe_barrier();
    }
    if (own < PE_COUNT) {
        const int place = smaller + before, inside = wanted >= 0 && wanted < PE_SIZE;
        scratch[place] = own;
        scratch[PE_COUNT + place] = before == 0 && inside ? equal : 0;
    }
}
