/* Byte-pair encoding: merges the pair of the lowest rank, the first of equal ones, until none is
 * left. */
#include "pe_tokenizer_table.h"

static bool precedes(const pe_tk_merge *a, const pe_tk_merge *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void swap(pe_tk_merge *heap, int32_t i, int32_t j) {
    const pe_tk_merge held = heap[i];
    heap[i] = heap[j];
    heap[j] = held;
}

static void push(pe_tk_merge *heap, int32_t *count, pe_tk_merge merge) {
    int32_t i = (*count)++;
    heap[i] = merge;
    while (i && precedes(&heap[i], &heap[(i - 1) / 2])) {
        swap(heap, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
}

static pe_tk_merge pop(pe_tk_merge *heap, int32_t *count) {
    const pe_tk_merge first = heap[0];
    heap[0] = heap[--*count];
    for (int32_t i = 0;;) {
        int32_t least = i;
        for (int32_t child = 2 * i + 1; child <= 2 * i + 2 && child < *count; child++) {
            least = precedes(&heap[child], &heap[least]) ? child : least;
        }
        if (least == i) {
            return first;
        }
        swap(heap, i, least);
        i = least;
    }
}

static const uint32_t *merge_of(const pe_tokenizer *t, uint32_t left, uint32_t right) {
    return pe_tk_find(t, PE_TK_MERGES, 4, 2, (const uint32_t[]){left, right});
}

/* Pushes the merge of a symbol with the next one onto the heap, if there is one. */
static void offer(const pe_tokenizer *t, const pe_tk_symbol *symbols, int32_t at, pe_tk_merge *heap,
                  int32_t *count) {
    if (at < 0 || symbols[at].after < 0) {
        return;
    }
    const uint32_t *row = merge_of(t, symbols[at].token, symbols[symbols[at].after].token);
    if (row) {
        push(heap, count, (pe_tk_merge){row[2], row[3], at});
    }
}

/* Whether the symbols of a merge are unchanged since it was pushed. */
static bool holds(const pe_tokenizer *t, const pe_tk_symbol *symbols, const pe_tk_merge *merge) {
    const pe_tk_symbol *left = &symbols[merge->at];
    if (left->token == PE_NO_TOKEN || left->after < 0) {
        return false;
    }
    const uint32_t *row = merge_of(t, left->token, symbols[left->after].token);
    return row && row[3] == merge->result;
}

int32_t pe_tk_merge_all(const pe_tokenizer *t, pe_tk_symbol *symbols, int32_t count,
                        pe_tk_merge *heap) {
    int32_t waiting = 0;
    for (int32_t i = 0; i < count; i++) {
        symbols[i].before = i - 1;
        symbols[i].after = i + 1 < count ? i + 1 : -1;
    }
    for (int32_t i = 0; i < count; i++) {
        offer(t, symbols, i, heap, &waiting);
    }
    while (waiting) {
        const pe_tk_merge merge = pop(heap, &waiting);
        if (!holds(t, symbols, &merge)) {
            continue;
        }
        pe_tk_symbol *left = &symbols[merge.at], *right = &symbols[left->after];
        left->token = merge.result;
        left->end = right->end;
        left->after = right->after;
        right->token = PE_NO_TOKEN;
        if (left->after >= 0) {
            symbols[left->after].before = merge.at;
        }
        offer(t, symbols, left->before, heap, &waiting);
        offer(t, symbols, merge.at, heap, &waiting);
    }
    int32_t left = 0;
    for (int32_t i = 0; i >= 0 && count; i = symbols[i].after) {
        const pe_tk_symbol symbol = symbols[i];
        symbols[left].token = symbol.token;
        symbols[left].begin = symbol.begin;
        symbols[left++].end = symbol.end;
    }
    return left;
}
