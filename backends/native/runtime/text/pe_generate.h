/* Text generation with a decoder, token by token: greedy or sampled.
 *
 * A program that generates has the entries "decode", for one token, and optionally "prefill" and
 * "prefill_long", for a chunk and a long chunk of a prompt. Their inputs are tokens, the position
 * of the first, and the token of the chunk to predict from; their output is logits. They store the
 * keys and values of earlier tokens in the session, for pe_positions positions.
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
    float temperature; /* 0: greedy; otherwise the divisor of the logits */
    float top_p;       /* samples from the fewest tokens with this total probability; 1: from all */
    uint32_t seed;     /* of random numbers */
} pe_sampling;

typedef struct pe_generation {
    pe_sampling sampling;
    int64_t limit;       /* maximum number of tokens; fewer if the positions run out */
    const int64_t *ends; /* tokens that end the text without being part of it */
    int end_count;
    bool (*notify)(void *context, int64_t token); /* called with each token; false ends the text.
                                                     May be NULL */
    void *context;
} pe_generation;

/* Positions of the cache, for prompt and answer together; 0 if the program cannot generate. */
int64_t pe_positions(const pe_program *program);

/* Writes at most how->limit tokens that follow a prompt to `tokens`, and their number to *made.
 * The session already has the keys and values of the first `cached` tokens of the prompt, from an
 * earlier call with the same tokens and weights. A prompt longer than the positions is
 * PE_ERROR_ARGUMENT, logits that are not finite are PE_ERROR_DIVERGED. */
pe_status pe_generate(pe_session *session, const int64_t *prompt, int64_t count, int64_t cached,
                      const pe_generation *how, int64_t *tokens, int64_t *made);

/* Chooses a token by the logits, which are overwritten. `number` is the number of the draw under
 * the seed. Returns -1 if a logit is not finite. */
int64_t pe_draw(float *logits, int64_t count, const pe_sampling *sampling, uint32_t number);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
