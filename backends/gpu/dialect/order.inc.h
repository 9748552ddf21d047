/* A stable sort of PE_COUNT indices, so that the terms of each sum are adjacent; every group reads
 * all indices in tiles. Reads index; writes scratch: for each place in sorted order the position of
 * its index, and the length of the run of equal indices that begins there. The length is 0 inside a
 * run and for an index outside PE_SIZE. */
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
