/* Stores the text of a chat, and the tokens that the session has processed. */
#include "pe_chat.h"

#include <string.h>

#include "pe_memory.h"
#include "pe_tokenizer_table.h"

enum { BYTES_OF_TOKEN = 32 };

static int64_t room_for_tokens(const pe_chat *chat) {
    return pe_tokenizer_most(chat->tokenizer, chat->text_room);
}

/* The tokens that end an answer: pe_chat_open puts them before the processed tokens. */
static int64_t *ends(const pe_chat *chat) {
    return chat->read - pe_tk_count(chat->tokenizer, PE_TK_STOPS);
}

pe_status pe_chat_open(pe_chat *chat, pe_session *session, const pe_tokenizer *tokenizer) {
    *chat = (pe_chat){.session = session, .tokenizer = tokenizer};
    chat->templated = pe_tk_count(tokenizer, PE_TK_ANSWER) > 0;
    const int64_t positions = pe_positions(session->program);
    if (!positions) {
        return pe_fail(session->message, PE_ERROR_MISMATCH,
                       "program %s has no entry \"decode\" that generates text",
                       session->program->name);
    }
    chat->text_room = (size_t)positions * BYTES_OF_TOKEN;
    const size_t tokens = (size_t)(room_for_tokens(chat) + positions) * sizeof(int64_t);
    const size_t work = pe_tokenizer_memory(tokenizer, chat->text_room);
    const uint32_t stops = pe_tk_count(tokenizer, PE_TK_STOPS);
    const size_t before = stops * sizeof(int64_t);
    unsigned char *memory = pe_map(&chat->memory, before + 2 * tokens + work + chat->text_room);
    if (!memory) {
        return pe_fail(session->message, PE_ERROR_SYSTEM, "cannot map the memory of a chat");
    }
    memory += before;
    chat->read = (int64_t *)(void *)memory;
    for (uint32_t i = 0; i < stops; i++) {
        ends(chat)[i] = pe_tk_words(tokenizer, PE_TK_STOPS)[i];
    }
    chat->tokens = (int64_t *)(void *)(memory + tokens);
    chat->work = memory + 2 * tokens;
    chat->text = (char *)memory + 2 * tokens + work;
    return PE_OK;
}

void pe_chat_close(pe_chat *chat) { pe_unmap(&chat->memory); }

static bool append(pe_chat *chat, const void *text, size_t bytes) {
    if (bytes > chat->text_room - chat->text_bytes) {
        return false;
    }
    memcpy(chat->text + chat->text_bytes, text, bytes);
    chat->text_bytes += bytes;
    return true;
}

static bool append_piece(pe_chat *chat, pe_tk_section section) {
    const void *text = pe_tk_words(chat->tokenizer, section);
    return append(chat, text, pe_tk_count(chat->tokenizer, section));
}

/* Removes the thoughts of the last answer, as the template does before the next question. */
static void forget_thoughts(pe_chat *chat, size_t answer) {
    static const char end[] = "</think>";
    const size_t length = sizeof end - 1;
    const unsigned form = pe_tk_head_of(chat->tokenizer)->chat;
    size_t kept = answer;
    for (size_t at = answer; form & PE_TK_FORGETS && at + length <= chat->text_bytes; at++) {
        kept = memcmp(chat->text + at, end, length) == 0 ? at + length : kept;
    }
    while (form & PE_TK_FORGETS_LINES && kept > answer && kept < chat->text_bytes &&
           chat->text[kept] == '\n') {
        kept++;
    }
    memmove(chat->text + answer, chat->text + kept, chat->text_bytes - kept);
    chat->text_bytes -= kept - answer;
}

/* Strips the last answer of surrounding spaces. */
static void strip(pe_chat *chat, size_t answer) {
    const char *text = chat->text + answer;
    const size_t bytes = pe_tk_strip(chat->tokenizer, &text, chat->text_bytes - answer);
    memmove(chat->text + answer, text, bytes);
    chat->text_bytes = answer + bytes;
}

/* An answer that grows by the text of its tokens. */
typedef struct growing {
    pe_chat *chat;
    const pe_generation *how;
    size_t begin, written; /* offsets in the chat's text */
    bool first, stopped, full;
} growing;

static bool stands_at(const growing *g, size_t at, const char *text, size_t bytes) {
    return memcmp(g->chat->text + at, text, bytes) == 0;
}

/* Cuts the answer at a stop text that ends after `known` bytes of the chat. */
static void cut(growing *g, size_t known) {
    pe_chat *chat = g->chat;
    for (int i = 0; i < chat->stop_count; i++) {
        const size_t bytes = strlen(chat->stops[i]);
        size_t at = known - g->begin < bytes ? g->begin : known + 1 - bytes;
        for (; at + bytes <= chat->text_bytes; at++) {
            if (stands_at(g, at, chat->stops[i], bytes)) {
                chat->text_bytes = at; /* a stop text after it is no longer found */
                g->stopped = true;
            }
        }
    }
}

/* The bytes at the end of the answer with which a stop text may begin. */
static size_t open_bytes(const growing *g) {
    const pe_chat *chat = g->chat;
    size_t most = 0;
    for (int i = 0; i < chat->stop_count; i++) {
        const size_t all = strlen(chat->stops[i]), grown = chat->text_bytes - g->begin;
        size_t bytes = all - 1 < grown ? all - 1 : grown;
        while (bytes > most && !stands_at(g, chat->text_bytes - bytes, chat->stops[i], bytes)) {
            bytes--;
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Writes the text up to `end`; false if the caller ends the answer. */
static bool write_text(growing *g, size_t end) {
    const size_t from = g->written;
    g->written = end > from ? end : from;
    return !g->chat->write || end <= from ||
           g->chat->write(g->how->context, g->chat->text + from, end - from);
}

static bool add_token(void *context, int64_t token) {
    growing *g = context;
    pe_chat *chat = g->chat;
    const size_t known = chat->text_bytes;
    g->full = pe_tokenizer_longest(chat->tokenizer) > chat->text_room - known;
    if (g->full) {
        return false;
    }
    chat->text_bytes += pe_token_text(chat->tokenizer, token, &g->first, chat->text + known);
    cut(g, known);
    const bool written = write_text(g, chat->text_bytes - (g->stopped ? 0 : open_bytes(g)));
    const bool notified = !g->how->notify || g->how->notify(g->how->context, token);
    return written && notified && !g->stopped;
}

/* Changes the last answer to what the template writes once a question follows. */
static void settle(pe_chat *chat, size_t answer) {
    forget_thoughts(chat, answer);
    if (pe_tk_head_of(chat->tokenizer)->chat & PE_TK_STRIPS_ANSWER) {
        strip(chat, answer);
    }
}

/* Number of leading tokens that the session has already processed; never includes the last one. */
static int64_t same_tokens(const pe_chat *chat, int64_t count) {
    int64_t same = 0;
    while (same < count - 1 && same < chat->read_count && chat->read[same] == chat->tokens[same]) {
        same++;
    }
    return same;
}

static pe_status fail_full(const pe_chat *chat) {
    return pe_fail(chat->session->message, PE_ERROR_ARGUMENT,
                   "the chat has more than %zu bytes; begin another", chat->text_room);
}

/* Generates tokens after the first `count` of chat->tokens, and appends their text. */
static pe_status generate(pe_chat *chat, int64_t count, const pe_generation *how, int64_t *made) {
    growing g = {.chat = chat, .how = how, .first = chat->templated};
    g.begin = g.written = chat->text_bytes;
    pe_generation own = *how;
    own.ends = ends(chat);
    own.end_count = (int)pe_tk_count(chat->tokenizer, PE_TK_STOPS);
    own.notify = add_token;
    own.context = &g;
    const pe_status status =
        pe_generate(chat->session, chat->tokens, count, same_tokens(chat, count), &own,
                    chat->tokens + count, made);
    chat->read_count = 0;
    if (status == PE_OK) { /* the last token of an answer may not have been processed */
        chat->read_count = count + (*made ? *made - 1 : 0);
        memcpy(chat->read, chat->tokens, (size_t)chat->read_count * sizeof(int64_t));
        write_text(&g, chat->text_bytes);
        settle(chat, g.begin);
    }
    return status == PE_OK && g.full ? fail_full(chat) : status;
}

pe_status pe_chat_answer(pe_chat *chat, const char *question, size_t bytes,
                         const pe_generation *how, int64_t *made) {
    const size_t before = chat->templated ? chat->text_bytes : 0;
    chat->text_bytes = before;
    *made = 0;
    if (pe_tk_head_of(chat->tokenizer)->chat & PE_TK_STRIPS_USER) {
        bytes = pe_tk_strip(chat->tokenizer, &question, bytes);
    }
    pe_status status = PE_OK;
    if (append_piece(chat, before ? PE_TK_ASK_AGAIN : PE_TK_ASK) && append(chat, question, bytes) &&
        append_piece(chat, PE_TK_ANSWER)) {
        const int64_t count = pe_tokenize(chat->tokenizer, chat->text, chat->text_bytes,
                                          chat->templated ? 0 : PE_TOKENS_BEGIN, chat->tokens,
                                          room_for_tokens(chat), chat->work);
        if (!append_piece(chat, PE_TK_EARLIER)) {
            status = fail_full(chat);
        } else if (count) { /* else there is nothing to complete */
            status = generate(chat, count, how, made);
        }
    } else {
        status = fail_full(chat);
    }
    chat->text_bytes = status == PE_OK ? chat->text_bytes : before;
    return status;
}
