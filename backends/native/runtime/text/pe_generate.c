/* Runs the entries of a decoder over a prompt, and then token by token. */
#include "pe_generate.h"

#include <string.h>

#include "pe_arguments.h"

/* An entry with the places of its inputs and output. */
typedef struct step {
    const pe_entry *entry;
    int64_t *ids;
    int64_t *start;
    int64_t *last;
    float *logits;
    int64_t tokens;
    int64_t vocabulary;
    int64_t positions; /* one more than the largest position of its first token */
} step;

static const pe_tensor *named(const pe_tensor *tensors, int count, const char *name,
                              pe_dtype dtype) {
    for (int i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0 && tensors[i].dtype == dtype) {
            return &tensors[i];
        }
    }
    return NULL;
}

/* Positions of the input "start", of which some op derives an index. */
static int64_t positions_of(const pe_entry *entry) {
    int64_t positions = 0;
    for (int i = 0; i < entry->range_count; i++) {
        const pe_index_range *range = &entry->ranges[i];
        if (strcmp(entry->inputs[range->input].name, "start") == 0) {
            positions = positions && positions <= range->high ? positions : range->high + 1;
        }
    }
    return positions;
}

static bool find_step(const pe_session *session, const char *name, step *found) {
    const pe_entry *entry = pe_find_entry(session->program, name);
    if (!entry) {
        return false;
    }
    const int count = entry->input_count;
    const pe_tensor *ids = named(entry->inputs, count, "input_ids", PE_I64);
    const pe_tensor *start = named(entry->inputs, count, "start", PE_I64);
    const pe_tensor *last = named(entry->inputs, count, "last", PE_I64);
    const pe_tensor *logits = named(entry->outputs, entry->output_count, "logits", PE_F32);
    if (!ids || !start || !logits) {
        return false;
    }
    *found = (step){
        .entry = entry,
        .ids = pe_tensor_data(session, ids),
        .start = pe_tensor_data(session, start),
        .last = last ? pe_tensor_data(session, last) : NULL,
        .logits = pe_tensor_data(session, logits),
        .tokens = (int64_t)(pe_tensor_bytes(ids) / sizeof(int64_t)),
        .vocabulary = (int64_t)(pe_tensor_bytes(logits) / sizeof(float)),
        .positions = positions_of(entry),
    };
    return true;
}

int64_t pe_positions(const pe_program *program) {
    const pe_entry *entry = program ? pe_find_entry(program, "decode") : NULL;
    return entry ? positions_of(entry) : 0;
}

/* Processes `count` tokens, at most a chunk, from position `start`. The chunk's padding is at
 * positions that later tokens overwrite before they are visible. */
static pe_status read_tokens(pe_session *session, const step *s, const int64_t *tokens,
                             int64_t count, int64_t start) {
    for (int64_t i = 0; i < s->tokens; i++) {
        s->ids[i] = tokens[i < count ? i : count - 1];
    }
    *s->start = start;
    if (s->last) {
        *s->last = count - 1;
    }
    return pe_run(session, s->entry, NULL, NULL);
}

/* The entries of a program; a chunk without an entry is absent. */
typedef struct steps {
    step one, chunk, long_chunk;
} steps;

static bool fits(const steps *all, const step *s, int64_t at) {
    return s->entry && at + s->tokens <= all->one.positions;
}

/* The step that reads the next of `left` tokens. A long chunk pays if more than half of it is used;
 * the rest is padding. */
static const step *next_step(const steps *all, int64_t left, int64_t at) {
    if (2 * left > all->long_chunk.tokens && fits(all, &all->long_chunk, at)) {
        return &all->long_chunk;
    }
    return left > 1 && fits(all, &all->chunk, at) ? &all->chunk : &all->one;
}

/* Processes a prompt from position `at`; *end is the step that returns the logits after it. */
static pe_status read_prompt(pe_session *session, const steps *all, const int64_t *prompt,
                             int64_t count, int64_t at, const step **end) {
    while (at < count) {
        const int64_t left = count - at;
        const step *s = next_step(all, left, at);
        const int64_t taken = left < s->tokens ? left : s->tokens;
        const pe_status status = read_tokens(session, s, prompt + at, taken, at);
        if (status != PE_OK) {
            return status;
        }
        at += taken;
        *end = s;
    }
    return PE_OK;
}

static pe_status check(pe_session *session, const step *one, int64_t count, int64_t cached,
                       const pe_generation *how) {
    const pe_sampling *sampling = &how->sampling;
    if (count < 1 || cached < 0 || cached >= count || how->limit < 0 || how->end_count < 0) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "pe_generate was given a prompt of %lld tokens, %lld of them cached, and a "
                       "limit of %lld; the last token of a prompt is never cached",
                       (long long)count, (long long)cached, (long long)how->limit);
    }
    if (count > one->positions) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "the prompt has %lld tokens, and the program has positions for %lld with "
                       "their answer; compile it for more, or shorten the prompt",
                       (long long)count, (long long)one->positions);
    }
    if (!(sampling->temperature >= 0)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT, "a temperature is at least 0, not %g",
                       (double)sampling->temperature);
    }
    if (!(sampling->top_p > 0 && sampling->top_p <= 1)) {
        return pe_fail(session->message, PE_ERROR_ARGUMENT,
                       "top_p is above 0 and at most 1, not %g", (double)sampling->top_p);
    }
    return PE_OK;
}

static bool is_end(const pe_generation *how, int64_t token) {
    for (int i = 0; i < how->end_count; i++) {
        if (how->ends[i] == token) {
            return true;
        }
    }
    return false;
}

/* Samples tokens one after another, starting with the logits of `s`. */
static pe_status extend(pe_session *session, const step *one, const step *s, int64_t at,
                        const pe_generation *how, int64_t *tokens, int64_t *made) {
    for (*made = 0; *made < how->limit;) {
        const int64_t token =
            pe_draw(s->logits, s->vocabulary, &how->sampling, (uint32_t)(at + *made));
        if (token < 0) {
            return pe_fail(session->message, PE_ERROR_DIVERGED,
                           "the logits of token %lld are not finite", (long long)(at + *made));
        }
        if (is_end(how, token)) {
            return PE_OK;
        }
        tokens[(*made)++] = token;
        if ((how->notify && !how->notify(how->context, token)) || *made == how->limit ||
            at + *made > one->positions) {
            return PE_OK;
        }
        const pe_status status = read_tokens(session, one, &token, 1, at + *made - 1);
        if (status != PE_OK) {
            return status;
        }
        s = one;
    }
    return PE_OK;
}

pe_status pe_generate(pe_session *session, const int64_t *prompt, int64_t count, int64_t cached,
                      const pe_generation *how, int64_t *tokens, int64_t *made) {
    pe_status status = pe_check_arguments(session, "pe_generate", prompt && how && tokens && made);
    if (status != PE_OK) {
        return status;
    }
    *made = 0;
    steps all = {0};
    if (!find_step(session, "decode", &all.one)) {
        return pe_fail(session->message, PE_ERROR_NAME,
                       "program %s has no entry \"decode\" that generates text",
                       session->program->name);
    }
    find_step(session, "prefill", &all.chunk);
    find_step(session, "prefill_long", &all.long_chunk);
    const step *end = NULL;
    status = check(session, &all.one, count, cached, how);
    if (status == PE_OK) {
        status = read_prompt(session, &all, prompt, count, cached, &end);
    }
    return status == PE_OK ? extend(session, &all.one, end, count, how, tokens, made) : status;
}
