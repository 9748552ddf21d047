/* Reads a line of JSON, and renders its text like finetune/lm/templates.py. */
#include "pe_example.h"

#include <stdlib.h>
#include <string.h>

#include "pe_tokenizer_table.h"

#define ONLY_PACKED "; `pockengine pack-lm` packs such chats into rows"

/* A decoded text. */
typedef struct slice {
    const char *text;
    size_t bytes;
} slice;

typedef enum role { NOBODY, SYSTEM, USER, ASSISTANT, OTHER } role;

static bool grow(pe_example *e, char **memory, size_t *room, size_t wanted) {
    if (wanted > *room) {
        char *larger = realloc(*memory, wanted + wanted / 2);
        e->no_memory = e->no_memory || !larger;
        *memory = larger ? larger : *memory;
        *room = larger ? wanted + wanted / 2 : *room;
    }
    return !e->no_memory;
}

static void append(pe_example *e, const void *text, size_t bytes) {
    if (bytes && grow(e, &e->text, &e->room, e->bytes + bytes)) {
        memcpy(e->text + e->bytes, text, bytes);
        e->bytes += bytes;
    }
}

static void append_piece(pe_example *e, pe_tk_section section) {
    append(e, pe_tk_words(e->tokenizer, section), pe_tk_count(e->tokenizer, section));
}

/* Records that a part starts or ends at the current end of the text. */
static void note_place(pe_example *e) {
    if (e->place_count == e->place_room) {
        const int room = 2 * e->place_room + 16;
        size_t *larger = realloc(e->places, (size_t)room * sizeof *larger);
        if (!larger) {
            e->no_memory = true;
            return;
        }
        e->places = larger;
        e->place_room = room;
    }
    e->places[e->place_count++] = e->bytes;
}

/* A text without surrounding spaces. */
static slice stripped(const pe_example *e, slice from) {
    from.bytes = pe_tk_strip(e->tokenizer, &from.text, from.bytes);
    return from;
}

static void append_content(pe_example *e, slice content, unsigned strips) {
    const bool strip = pe_tk_head_of(e->tokenizer)->chat & strips;
    content = strip ? stripped(e, content) : content;
    append(e, content.text, content.bytes);
}

static bool is_word(slice text, const char *word) {
    return text.bytes == strlen(word) && memcmp(text.text, word, text.bytes) == 0;
}

static role role_of(slice name) {
    return is_word(name, "system")      ? SYSTEM
           : is_word(name, "user")      ? USER
           : is_word(name, "assistant") ? ASSISTANT
                                        : OTHER;
}

/* An answer, with the template's prefix. */
static void append_answer(pe_example *e, slice content) {
    append_piece(e, PE_TK_ANSWER);
    note_place(e);
    append_piece(e, PE_TK_OPENED);
    append_content(e, content, PE_TK_STRIPS_ANSWER);
    append_piece(e, PE_TK_CLOSED);
    note_place(e);
}

static bool has_thoughts(slice content) {
    static const char mark[] = "</think>";
    const size_t bytes = sizeof mark - 1;
    for (size_t i = 0; i + bytes <= content.bytes; i++) {
        if (memcmp(content.text + i, mark, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* A question, with the template's prefix. */
static void append_question(pe_example *e, slice content, role before) {
    if (before == ASSISTANT) { /* the end of the answer is already written */
        const size_t closed = pe_tk_count(e->tokenizer, PE_TK_CLOSED);
        const char *again = (const char *)pe_tk_words(e->tokenizer, PE_TK_ASK_AGAIN);
        append(e, again + closed, pe_tk_count(e->tokenizer, PE_TK_ASK_AGAIN) - closed);
    } else {
        append_piece(e, before == SYSTEM ? PE_TK_INSTRUCTED : PE_TK_ASK);
    }
    append_content(e, content, PE_TK_STRIPS_USER);
}

/* Renders a message with the template. */
static const char *append_templated(pe_example *e, role who, role before, slice content) {
    const unsigned chat = pe_tk_head_of(e->tokenizer)->chat;
    if (!(chat & PE_TK_LEARNS)) {
        return "a chat, whose answers the model's template writes otherwise than its questions "
               "prepare";
    }
    if (who == ASSISTANT && chat & PE_TK_THINKS && has_thoughts(content)) {
        return "an answer with </think>, which the model's template writes otherwise";
    }
    if (who == SYSTEM && before == NOBODY && chat & PE_TK_HAS_SYSTEM) {
        append_piece(e, PE_TK_SYSTEM);
        append_content(e, content, PE_TK_STRIPS_SYSTEM);
    } else if (who == USER && before != USER && (before != ASSISTANT || chat & PE_TK_TURNS)) {
        append_question(e, content, before);
    } else if (who == ASSISTANT && before == USER) {
        append_answer(e, content);
    } else {
        return before == ASSISTANT && who == USER
                   ? "a second turn, which the model's template writes otherwise than a first "
                     "one" ONLY_PACKED
                   : "a role out of turn: the model's template takes user and assistant in turn, "
                     "and a system at most first" ONLY_PACKED;
    }
    return NULL;
}

/* Renders a message without a template. */
static const char *append_plain(pe_example *e, slice name, slice content) {
    const bool answer = role_of(name) == ASSISTANT;
    append(e, "### ", 4);
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.text[i];
        if (c & (char)0x80) {
            return "a role that is not of ASCII letters";
        }
        c = (char)(i == 0 && c >= 'a' && c <= 'z' ? c - 32
                   : i && c >= 'A' && c <= 'Z'    ? c + 32
                                                  : c);
        append(e, &c, 1);
    }
    append(e, "\n", 1);
    if (answer) {
        note_place(e);
    }
    append(e, content.text, content.bytes);
    append(e, "\n\n", 2);
    if (answer) {
        note_place(e);
    }
    return NULL;
}

/* Appends a decoded text to the others of the line. */
static slice take_text(pe_json *j, char **free_text) {
    const slice result = {*free_text, pe_json_string(j, *free_text)};
    *free_text += result.bytes;
    return result;
}

/* Skips a value that a template could render; an empty one has no meaning. */
static void skip_unread(pe_json *j, const char *fault) {
    const int first = pe_json_peek(j);
    pe_json inside = *j;
    pe_json_skip(j);
    if (first == 'n' || first == 'f') { /* null or false */
        return;
    }
    inside.at += !j->fault;
    const int next = first == '"' ? *inside.at : pe_json_peek(&inside);
    const char *closing = first == '[' ? "]" : first == '{' ? "}" : "\"";
    if (!j->fault && (!strchr("[{\"", first) || next != closing[0])) {
        pe_json_bad(j, fault);
    }
}

/* The fault of a message with this field, which templates may render; NULL for other fields. */
static const char *unread(slice key) {
    return is_word(key, "tool_calls") ? "tool calls, which are not read" ONLY_PACKED
           : is_word(key, "reasoning_content") || is_word(key, "thinking")
               ? "thoughts beside a message's content, which are not read"
               : NULL;
}

/* Reads a message; unknown keys are skipped, and a content that is null. */
static void take_message(pe_json *j, char *strings, slice *name, slice *content) {
    *name = *content = (slice){NULL, 0};
    pe_json_expect(j, '{', "a message that is no object");
    do {
        const slice key = take_text(j, &strings);
        pe_json_expect(j, ':', "a colon is missing");
        slice *place = is_word(key, "role") ? name : is_word(key, "content") ? content : NULL;
        if (place && place->text) {
            pe_json_bad(j, "a message with two roles or contents");
        } else if (place && pe_json_peek(j) == '[') {
            pe_json_bad(j, "a content that is a list" ONLY_PACKED);
        } else if (place && pe_json_peek(j) != 'n') {
            *place = take_text(j, &strings);
        } else if (unread(key)) {
            skip_unread(j, unread(key));
        } else {
            pe_json_skip(j);
        }
    } while (pe_json_accept(j, ','));
    pe_json_expect(j, '}', "the end of a message is missing");
    if (!name->text || !content->text) {
        pe_json_bad(j, "a message without role or content");
    }
}

static void take_messages(pe_example *e, pe_json *j) {
    const bool templated = pe_tk_count(e->tokenizer, PE_TK_ANSWER) > 0;
    role before = NOBODY;
    e->marked = templated;
    pe_json_expect(j, '[', "messages that are no list");
    while (!j->fault && pe_json_peek(j) != ']') {
        slice name, content;
        take_message(j, e->strings, &name, &content);
        if (j->fault) {
            return;
        }
        const role who = role_of(name);
        const char *fault =
            templated ? append_templated(e, who, before, content) : append_plain(e, name, content);
        if (fault) {
            pe_json_bad(j, fault);
        }
        e->empty = e->empty && (who != ASSISTANT || !stripped(e, content).bytes);
        before = who;
        if (!pe_json_accept(j, ',') && pe_json_peek(j) != ']') {
            pe_json_bad(j, "a comma between messages is missing");
        }
    }
    if (templated && before == USER) {
        append_piece(e, PE_TK_ASKED);
    }
    e->ends = !templated && before == ASSISTANT;
}

static const char no_text[1]; /* marks a member that is there without being a text */

/* Content of a line; `messages` is the start of their list. */
typedef struct members {
    slice prompt, completion, text;
    pe_json messages;
} members;

static void take_members(pe_example *e, pe_json *j, members *m) {
    char *strings = e->strings;
    pe_json_expect(j, '{', "it is not an object");
    if (pe_json_accept(j, '}')) {
        return;
    }
    do {
        const slice key = take_text(j, &strings);
        pe_json_expect(j, ':', "a colon is missing");
        slice *place = is_word(key, "prompt")       ? &m->prompt
                       : is_word(key, "completion") ? &m->completion
                       : is_word(key, "text")       ? &m->text
                                                    : NULL;
        const bool chat = is_word(key, "messages");
        if ((place && place->text) || (chat && m->messages.at)) {
            pe_json_bad(j, "a key that is there twice");
        } else if (place && pe_json_peek(j) == '"') {
            *place = take_text(j, &strings);
        } else if (is_word(key, "tools")) {
            skip_unread(j, "tools, which are not read" ONLY_PACKED);
        } else {
            pe_json_peek(j);
            m->messages = chat ? *j : m->messages;
            *(place ? place : &(slice){NULL, 0}) = (slice){no_text, 0};
            pe_json_skip(j);
        }
    } while (pe_json_accept(j, ','));
    pe_json_expect(j, '}', "a comma or the end of the object is missing");
    pe_json_peek(j); /* skips spaces; a zero byte is none */
    if (j->at < j->end) {
        pe_json_bad(j, "something behind the object");
    }
}

/* Renders a prompt with its completion, or a text. */
static void append_texts(pe_example *e, const members *m) {
    const bool asks = m->prompt.text || m->completion.text;
    const slice learned = asks ? m->completion : m->text;
    if (!learned.text || (asks && !m->prompt.text)) {
        e->fault = "it has no messages, no prompt with completion, and no text";
        return;
    }
    if (learned.text == no_text || (asks && m->prompt.text == no_text)) {
        e->fault = "its prompt, completion or text is no text";
        return;
    }
    if (m->completion.text) {
        append(e, m->prompt.text, m->prompt.bytes);
    }
    note_place(e);
    append(e, learned.text, learned.bytes);
    note_place(e);
    e->empty = !stripped(e, learned).bytes;
    e->ends = learned.bytes > 0;
}

bool pe_example_read(pe_example *e, const unsigned char *line, size_t bytes) {
    pe_json j = {line, line + bytes, NULL};
    members m = {.messages = {NULL, NULL, NULL}};
    e->bytes = 0;
    e->place_count = 0;
    e->marked = e->ends = false;
    e->empty = true;
    e->fault = NULL;
    if (!grow(e, &e->strings, &e->string_room, bytes + 1)) {
        return false;
    }
    take_members(e, &j, &m);
    if (!j.fault && m.messages.at) {
        take_messages(e, &m.messages);
        j.fault = m.messages.fault;
    } else if (!j.fault) {
        append_texts(e, &m);
    }
    e->fault = e->fault ? e->fault : j.fault;
    return !e->fault && !e->no_memory;
}

void pe_example_free(pe_example *e) {
    free(e->text);
    free(e->strings);
    free(e->places);
}
