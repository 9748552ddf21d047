/* A chat with a decoder: questions in, tokens of the answers out.
 *
 * The texts around questions and answers are those of the model's chat template, which
 * models/tokenizer_table.py wrote into the tokenizer's table as literal pieces. Without them each
 * question is a text of its own, which is completed.
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
    char *text;    /* all questions and answers, with the pieces around them */
    int64_t *read; /* tokens whose keys and values the session has */
    int64_t *tokens;
    void *work;
    size_t text_bytes, text_room;
    int64_t read_count;
    pe_mapping memory;
} pe_chat;

/* Maps memory for a chat of up to the program's number of positions; PE_ERROR_MISMATCH where
 * it generates nothing. Messages are the session's. */
pe_status pe_chat_open(pe_chat *chat, pe_session *session, const pe_tokenizer *tokenizer);
void pe_chat_close(pe_chat *chat);

/* Answers a question of these bytes by how->notify, and returns the number of tokens in *made. The
 * ends of an answer are the tokenizer's, whatever how->ends has. After an error the chat is as it
 * was before the question. */
pe_status pe_chat_answer(pe_chat *chat, const char *question, size_t bytes,
                         const pe_generation *how, int64_t *made);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
