/* A chat with a decoder: takes questions and returns the tokens of the answers.
 *
 * The text around questions and answers comes from the model's chat template, which
 * models/tokenizer_table.py writes into the tokenizer's table as literal pieces. Without a template
 * each question is a separate text, which the model completes.
 */
#ifndef PE_CHAT_H
#define PE_CHAT_H

#include "pe_generate.h"
#include "pe_tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The session and the tokenizer are the caller's, until pe_chat_close. */
typedef struct pe_chat {
    pe_session *session;
    const pe_tokenizer *tokenizer;
    bool templated; /* whether an answer begins a text: *first of pe_token_text before it */
    const char *const *stops; /* texts that end an answer without being part of it; set by the
                                 caller after pe_chat_open, none of them empty */
    int stop_count;
    bool (*write)(void *context, const char *text, size_t bytes); /* called with how->context and
        the answer's text as it grows; false ends it. Set by the caller, or NULL */
    char *text;    /* all questions and answers, with the pieces around them */
    int64_t *read; /* tokens whose keys and values the session has */
    int64_t *tokens;
    void *work;
    size_t text_bytes, text_room;
    int64_t read_count;
    pe_mapping memory;
} pe_chat;

/* Maps memory for a chat of up to the program's number of positions; PE_ERROR_MISMATCH if the
 * program has no entries for generation. Error messages are in the session. */
pe_status pe_chat_open(pe_chat *chat, pe_session *session, const pe_tokenizer *tokenizer);
void pe_chat_close(pe_chat *chat);

/* Answers a question, passes its text to chat->write and each token to how->notify, and returns
 * the number of tokens in *made, with those of a stop text. The tokenizer's end tokens end an
 * answer; how->ends is ignored. After an error the chat is in its state before the question. */
pe_status pe_chat_answer(pe_chat *chat, const char *question, size_t bytes,
                         const pe_generation *how, int64_t *made);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
