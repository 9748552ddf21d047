/* Tokenizes the lines of a file, and packs them into rows. */
#include "pe_texts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pe_example.h"
#include "pe_memory.h"
#include "pe_tokenizer_table.h"

enum { OPEN_ROWS = 64, SHOWN = 5 };

/* A row with room for more texts. */
typedef struct open_row {
    int64_t row, left;
} open_row;

/* State of reading a file's lines. */
typedef struct reader {
    pe_texts *texts;
    const pe_row_form *form;
    pe_example example;
    int64_t *tokens;
    bool *within;
    size_t *mapped;
    void *work;
    size_t room; /* capacity in bytes of text */
    int map_room;
    int64_t row_room;
    open_row open[OPEN_ROWS + 1]; /* line numbers */
    int open_count;
} reader;

/* Resizes memory to `count` elements; if that fails, sets *failed and returns it unchanged. */
static void *resized(void *memory, size_t count, size_t size, bool *failed) {
    void *larger = realloc(memory, count * size);
    *failed = *failed || !larger;
    return larger ? larger : memory;
}

/* Reserves memory for the tokens of the example. */
static bool make_room(reader *r) {
    const pe_example *e = &r->example;
    bool failed = false;
    if (e->bytes >= r->room) {
        const size_t room = e->bytes + e->bytes / 2 + 64;
        const size_t tokens = 1 + (size_t)pe_tokenizer_most(r->form->tokenizer, room);
        r->tokens = resized(r->tokens, tokens, sizeof *r->tokens, &failed);
        r->within = resized(r->within, tokens, sizeof *r->within, &failed);
        r->work = resized(r->work, pe_tokenizer_memory(r->form->tokenizer, room), 1, &failed);
        r->room = failed ? r->room : room;
    }
    if (e->place_count > r->map_room) {
        r->mapped = resized(r->mapped, (size_t)e->place_room, sizeof *r->mapped, &failed);
        r->map_room = failed ? r->map_room : e->place_room;
    }
    return !failed;
}

/* Tokens of a non-empty example, with the end token. */
static int64_t tokenize(reader *r) {
    const pe_example *e = &r->example;
    const pe_tokenizer *t = r->form->tokenizer;
    pe_tk_parts parts = {e->places, r->mapped, e->place_count, r->within};
    const unsigned marks = e->marked ? 0 : PE_TOKENS_BEGIN | PE_TOKENS_END;
    int64_t count = pe_tk_tokenize(t, e->text, e->bytes, marks, r->tokens,
                                   pe_tokenizer_most(t, e->bytes), r->work, &parts);
    if (!pe_tk_count(t, PE_TK_EOS) || e->marked) {
        return count;
    }
    const int64_t end = pe_tk_words(t, PE_TK_EOS)[0];
    const bool ended = count && r->tokens[count - 1] == end;
    if (e->ends) {
        count += !ended;
        r->tokens[count - 1] = end;
        r->within[count - 1] = true;
    }
    return count - (!e->ends && ended);
}

static int64_t counted(const reader *r, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 1; i < count; i++) {
        sum += r->within[i];
    }
    return sum;
}

static void note(pe_text_lines *lines, int64_t line) {
    if (lines->count < SHOWN) {
        lines->first[lines->count] = line;
    }
    lines->count++;
}

/* Starts a row, with memory for all its tokens. */
static bool begin_row(reader *r) {
    pe_texts *t = r->texts;
    if (t->rows == r->row_room) {
        const int64_t room = 2 * r->row_room + 16;
        const size_t tokens = (size_t)(room * t->length);
        bool failed = false;
        t->ids = resized(t->ids, tokens, sizeof *t->ids, &failed);
        t->labels = resized(t->labels, tokens, sizeof *t->labels, &failed);
        t->positions = resized(t->positions, tokens, sizeof *t->positions, &failed);
        if (failed) {
            return false;
        }
        r->row_room = room;
    }
    for (int64_t i = t->rows * t->length; i < (t->rows + 1) * t->length; i++) {
        t->ids[i] = t->positions[i] = 0;
        t->labels[i] = PE_IGNORED;
    }
    r->open[r->open_count++] = (open_row){t->rows++, t->length};
    return true;
}

/* Closes the fullest row if it is full, or if too many rows are open. */
static void close_row(reader *r, bool full) {
    int fullest = 0;
    for (int i = 1; i < r->open_count; i++) {
        fullest = r->open[i].left < r->open[fullest].left ? i : fullest;
    }
    if (full || r->open_count > OPEN_ROWS) {
        r->open_count--;
        memmove(&r->open[fullest], &r->open[fullest + 1],
                (size_t)(r->open_count - fullest) * sizeof *r->open);
    }
}

/* Adds the tokens to the first row with enough room, or to a new one. */
static bool pack(reader *r, int64_t count) {
    pe_texts *t = r->texts;
    int place = 0;
    const bool apart = r->form->apart || pe_tk_head_of(r->form->tokenizer)->chat & PE_TK_MIXES;
    while (place < r->open_count && (apart || r->open[place].left < count)) {
        place++;
    }
    if (place == r->open_count && !begin_row(r)) {
        return false;
    }
    open_row *row = &r->open[place];
    const int64_t at = row->row * t->length + t->length - row->left;
    for (int64_t i = 0; i < count; i++) {
        t->ids[at + i] = r->tokens[i];
        t->labels[at + i] = i && r->within[i] ? r->tokens[i] : PE_IGNORED;
        t->positions[at + i] = i;
    }
    t->tokens += count;
    row->left -= count;
    close_row(r, row->left == 0);
    return true;
}

/* Adds the example of a line; false if memory is exhausted. */
static bool take(reader *r, int64_t line) {
    pe_texts *t = r->texts;
    if (r->example.empty) {
        note(&t->empty, line);
        return true;
    }
    if (!make_room(r)) {
        return false;
    }
    int64_t count = tokenize(r);
    if (count > t->length) {
        note(r->form->truncate ? &t->cut : &t->too_long, line);
        if (!r->form->truncate) {
            return true;
        }
        count = t->length;
    }
    if (!counted(r, count)) {
        note(&t->empty, line);
        return true;
    }
    return pack(r, count);
}

static bool is_blank(const unsigned char *line, size_t bytes) {
    size_t i = 0;
    while (i < bytes && (line[i] == ' ' || (line[i] >= '\t' && line[i] <= '\r'))) {
        i++;
    }
    return i == bytes;
}

static pe_status read_lines(reader *r, const char *path, const unsigned char *text, size_t bytes,
                            char *message) {
    size_t at = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    for (int64_t line = 1; at < bytes; line++) {
        const unsigned char *end = memchr(text + at, '\n', bytes - at);
        const size_t length = end ? (size_t)(end - text) - at : bytes - at;
        const bool blank = is_blank(text + at, length);
        if (!blank && !pe_example_read(&r->example, text + at, length) && r->example.fault) {
            return pe_fail(message, PE_ERROR_FORMAT,
                           "%.200s, line %lld is not an example: %s; a line is a JSON object with "
                           "messages, prompt with completion, or text",
                           path, (long long)line, r->example.fault);
        }
        if (r->example.no_memory || (!blank && !take(r, line))) {
            return pe_fail(message, PE_ERROR_SYSTEM, "there is no memory for the texts of %s",
                           path);
        }
        at += length + 1;
    }
    return PE_OK;
}

static pe_status check(const pe_row_form *form, const char *path, char *message) {
    return pe_tk_head_of(form->tokenizer)->flags & PE_TK_TRIMMED
               ? pe_fail(message, PE_ERROR_MISMATCH,
                         "%s cannot be read: the tokenizer trims the offsets of its tokens, from "
                         "which the learned ones are found; pack the texts by `pockengine pack-lm`",
                         path)
               : PE_OK;
}

static pe_status map_text(pe_mapping *mapping, const char *path, const unsigned char **text,
                          size_t *bytes, char *message) {
    struct stat facts;
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &facts) == 0 && facts.st_size > 0) {
        *bytes = (size_t)facts.st_size;
        *text = pe_map_file(mapping, file, 0, *bytes);
    }
    if (file >= 0) {
        close(file);
    }
    return *text ? PE_OK
                 : pe_fail(message, PE_ERROR_SYSTEM,
                           "%s cannot be read, or is empty; give JSON lines", path);
}

pe_status pe_texts_read(pe_texts *texts, const char *path, const pe_row_form *form, char *message) {
    reader r = {.texts = texts, .form = form, .example = {.tokenizer = form->tokenizer}};
    pe_mapping mapping = {0};
    const unsigned char *text = NULL;
    size_t bytes = 0;
    *texts = (pe_texts){.length = form->length};
    pe_status status = check(form, path, message);
    status = status == PE_OK ? map_text(&mapping, path, &text, &bytes, message) : status;
    status = status == PE_OK ? read_lines(&r, path, text, bytes, message) : status;
    if (status == PE_OK && !texts->rows) {
        status = pe_fail(message, PE_ERROR_MISMATCH,
                         "%.200s leaves no example: %lld hold nothing to learn, %lld are longer "
                         "than %lld tokens; give other texts, or --truncate",
                         path, (long long)texts->empty.count, (long long)texts->too_long.count,
                         (long long)form->length);
    }
    pe_unmap(&mapping);
    pe_example_free(&r.example);
    free(r.tokens);
    free(r.within);
    free(r.mapped);
    free(r.work);
    return status;
}

void pe_texts_free(pe_texts *texts) {
    free(texts->ids);
    free(texts->labels);
    free(texts->positions);
    *texts = (pe_texts){0};
}
