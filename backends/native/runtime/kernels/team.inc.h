/* The threads that take part in a kernel: at most PE_THREADS, the number that have scratch. The
 * others get empty shares and only pass the barriers. */

#define PE_SPLIT_ROWS 0
#define PE_SPLIT_COLUMNS 1
#define PE_SPLIT_INNER 2

PE_INLINE pe_range PE_FN(share)(const pe_worker *w, ptrdiff_t total, ptrdiff_t grain) {
    const int count = w->count < PE_THREADS ? w->count : PE_THREADS;
    if (w->index >= count) {
        return (pe_range){total, total};
    }
    const pe_worker member = {w->index, count, w->team};
    return pe_split(&member, total, grain);
}
