/* Text by a decoder, token for token: the likeliest one each time, or a drawn one.
 *
 * A program that generates has the entries "prefill", for a chunk of a prompt, and "decode", for
 * one token. Their inputs are tokens, the position of the first, and the token of the chunk to
 * predict from; their output is logits. They keep keys and values of earlier tokens in the session,
 * for as many positions as pe_positions returns.
 */
#ifndef PE_GENERATE_H
#define PE_GENERATE_H

#include "pe.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* How a token is chosen. */
typedef struct pe_sampling {
    float temperature; /* 0: the likeliest; else logits are divided by it */
    float top_p;       /* draws from the fewest tokens that have this share together; 1: from all */
    uint32_t seed;     /* of random numbers */
} pe_sampling;

typedef struct pe_generation {
    pe_sampling sampling;
    int64_t limit;       /* most tokens; fewer where the positions end */
    const int64_t *ends; /* tokens that end the text without being part of it */
    int end_count;
    bool (*notify)(void *context, int64_t token); /* called with each token; false ends the text.
                                                     May be NULL */
    void *context;
} pe_generation;

/* Positions of the cache: prompt and answer together; 0 where a program generates nothing. */
int64_t pe_positions(const pe_program *program);

/* Puts at most how->limit tokens that follow a prompt into `tokens`, and their number into *made.
 * The session has the keys and values of the first `cached` tokens of the prompt already, from a
 * call before with the same ones and the same weights. A prompt longer than the positions is
 * PE_ERROR_ARGUMENT, logits that are not finite are PE_ERROR_DIVERGED. */
pe_status pe_generate(pe_session *session, const int64_t *prompt, int64_t count, int64_t cached,
                      const pe_generation *how, int64_t *tokens, int64_t *made);

/* Chooses a token by its logits, which become weights of the draw. `number` is that of the draw
 * under the seed. -1 where a logit is not finite. */
int64_t pe_draw(float *logits, int64_t count, const pe_sampling *sampling, uint32_t number);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
