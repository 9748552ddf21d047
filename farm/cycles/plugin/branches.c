/* A tournament predictor with a counter per branch and one per history, targets predicted by
 * history, and a return stack. */
#include "core.h"

enum { COUNTERS = 8192, TARGETS = 2048, STACK = 16, HISTORY_BITS = 12 };

static uint8_t by_address[COUNTERS], by_history[COUNTERS], chooser[COUNTERS];
static uint64_t targets[TARGETS], stack[STACK];
static uint32_t history, depth;

static void learn(uint8_t *counter, bool taken) {
    if (taken && *counter < 3) {
        (*counter)++;
    } else if (!taken && *counter > 0) {
        (*counter)--;
    }
}

static bool conditional(uint64_t address, bool taken) {
    uint32_t place = (uint32_t)(address >> 2);
    uint8_t *own = &by_address[place % COUNTERS];
    uint8_t *with_history = &by_history[(place ^ history) % COUNTERS];
    uint8_t *choice = &chooser[place % COUNTERS];
    bool first = *own >= 2, second = *with_history >= 2;
    bool guess = *choice >= 2 ? second : first;
    if (first != second) {
        learn(choice, second == taken);
    }
    learn(own, taken);
    learn(with_history, taken);
    history = (history << 1 | taken) & ((1U << HISTORY_BITS) - 1);
    return guess == taken;
}

static bool indirect(uint64_t address, uint64_t target) {
    uint64_t *guess = &targets[(address >> 2 ^ history) % TARGETS];
    bool right = *guess == target;
    *guess = target;
    history = (history << 2 ^ (uint32_t)(target >> 2)) & ((1U << HISTORY_BITS) - 1);
    return right;
}

bool predicted(enum branch kind, uint64_t address, uint64_t next, uint64_t target) {
    bool right = true;
    if (kind == CONDITIONAL) {
        right = conditional(address, target != next);
    } else if (kind == RETURN) {
        depth = (depth + STACK - 1) % STACK;
        right = stack[depth] == target;
    } else if (kind == INDIRECT || kind == INDIRECT_CALL) {
        right = indirect(address, target);
    }
    if (kind == CALL || kind == INDIRECT_CALL) {
        stack[depth] = next;
        depth = (depth + 1) % STACK;
    }
    return right;
}
