"""The C API on the caller's memory: results, every kind of misuse, and no allocation."""

import subprocess
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from pockengine.backends.native.program import generate
from pockengine.backends.native.runtime_files import (
    RUNTIME,
    copy_runtime,
    runtime_file,
    runtime_sources,
)
from pockengine.backends.specification import ABI
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS, device_of
from pockengine.tests.backends.c.objects import build_executable, link, object_of
from pockengine.tests.backends.c.programs import compile_for, point_graph

CALLER = r"""
#include <stdio.h>
#include <string.h>
#include "pe_program_point.h"

#define POINT (&pe_program_point)

#define CHECK(what) \
    if (!(what)) { \
        printf("line %d: %s (%s)\n", __LINE__, #what, session.message); \
        return 1; \
    }

static pe_session session;
static _Alignas(PE_ALIGN) unsigned char params[1 << 16], arena[1 << 20];

static bool says(const char *words) { return strstr(session.message, words) != NULL; }

static int misuse(void) {
    float numbers[300] = {0};
    CHECK(pe_init(&session, POINT, params + 1, arena, 1) == PE_ERROR_ARGUMENT);
    CHECK(says("aligned"));
    CHECK(pe_init(&session, POINT, NULL, arena, 1) == PE_ERROR_ARGUMENT && says("bytes of"));
    CHECK(pe_init(&session, POINT, params, arena, 1) == PE_OK);
    CHECK(pe_get_param(&session, "banana", numbers, 4) == PE_ERROR_NAME && says("banana"));
    CHECK(pe_get_param(&session, "point", numbers, 4) == PE_ERROR_ARGUMENT && says("1200 bytes"));
    CHECK(pe_set_param(&session, "point", numbers, 1201) == PE_ERROR_ARGUMENT && says("not 1201"));
    CHECK(pe_run(&session, NULL, NULL, NULL) == PE_ERROR_ARGUMENT && says("given NULL"));
    CHECK(pe_find_entry(POINT, "banana") == NULL);
    CHECK(pe_load_weights(&session, "/nonexistent") == PE_ERROR_SYSTEM && says("No such file"));
    pe_close(&session);
    return 0;
}

static int use(int threads, const char *weights) {
    float x[300], point[300], distance[300], loss = 0;
    for (int i = 0; i < 300; i++) {
        x[i] = 2.0f;
        point[i] = (float)i;
    }
    const void *inputs[] = {x, NULL};
    void *outputs[] = {&loss, NULL}, *predicted[] = {distance};
    const pe_entry *train = pe_find_entry(POINT, "train");
    CHECK(PE_POINT_PARAMS_BYTES <= sizeof params && PE_POINT_ARENA_BYTES <= sizeof arena);
    CHECK(pe_init(&session, POINT, params, arena, threads) == PE_OK);
    CHECK(session.threads == threads);
    CHECK(pe_load_weights(&session, weights) == PE_OK);
    CHECK(train && strcmp(train->inputs[0].name, "x") == 0);
    CHECK(pe_is_control(&train->inputs[1]) && !pe_is_control(&train->inputs[0]));
    CHECK(pe_set_param(&session, "point", point, sizeof point) == PE_OK);
    CHECK(pe_predict(&session, inputs, predicted) == PE_OK);
    CHECK(distance[0] == 2.0f && distance[2] == 0.0f && distance[299] == 297.0f);
    const pe_controls controls = {.lr = 30.0f, .step = 1};
    for (int i = 0; i < train->output_count; i++) {
        outputs[i] = strcmp(train->outputs[i].name, "loss") == 0 ? &loss : NULL;
    }
    CHECK(pe_train_step(&session, inputs, &controls, outputs) == PE_OK);
    CHECK(loss > 29000.0f && loss < 30000.0f); /* the mean of (i - 2)^2 */
    CHECK(pe_get_param(&session, "point", point, sizeof point) == PE_OK);
    CHECK(point[2] < 2.0f && point[299] < 299.0f && point[0] > 0.0f);
    pe_close(&session);
    return 0;
}

int main(int count, char **arguments) {
    return count != 2 || misuse() || use(1, arguments[1]) || use(3, arguments[1]);
}
"""

OTHER_CALLER = r"""
#include <stdio.h>
#include <string.h>
#include "pe_host.h"

extern const pe_program pe_program_point;

/* The session as this caller's header has it, and what lies behind. */
static struct {
    pe_session session;
    unsigned char behind[2 * sizeof(pe_session)];
} mine;
static _Alignas(PE_ALIGN) unsigned char params[1 << 16], arena[1 << 20];

int main(void) {
    char message[PE_MESSAGE_BYTES] = "";
    memset(&mine, 7, sizeof mine);
    const pe_status status = pe_init(&mine.session, &pe_program_point, params, arena, 1);
    const unsigned char *bytes = (const unsigned char *)&mine, *text = (void *)mine.session.message;
    for (size_t i = 0; i < sizeof mine; i++) {
        if (bytes[i] != 7 && (bytes + i < text || bytes + i >= text + PE_MESSAGE_BYTES)) {
            printf("byte %zu of %zu was written\n", i, sizeof(pe_session));
            return 1;
        }
    }
    printf("%d %s\n", status, mine.session.message);
    return pe_open(&pe_program_point, 1, message) || strcmp(message, mine.session.message);
}
"""

HUGE = r"""
#include <stdio.h>
#include <string.h>
#include "pe_host.h"

static const pe_program huge = {.abi = PE_ABI, .name = "huge", .params_bytes = 64,
    .arena_bytes = BYTES, .max_threads = 1};

int main(void) {
    char message[PE_MESSAGE_BYTES] = "";
    pe_session *session = pe_open(&huge, 1, message);
    printf("%s", message);
    return session != NULL;
}
"""

COUNTER = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

static int calls;

/* The linker sends the program's own calls here. */
void *__wrap_malloc(size_t size) { return calls++, (void)size, NULL; }
void *__wrap_calloc(size_t count, size_t size) { return calls++, (void)count, (void)size, NULL; }
void *__wrap_realloc(void *p, size_t size) { return calls++, (void)p, (void)size, NULL; }

__attribute__((destructor)) static void report(void) {
    if (calls) {
        fprintf(stderr, "%d allocations\n", calls);
        _Exit(9);
    }
}
"""

RUNTIME_PARTS = (
    *("pe", "pe_arguments", "pe_cpu", "pe_cpu_needs", "pe_frozen", "pe_host", "pe_memory"),
    *("pe_pool", "pe_ranges", "pe_text", "pe_threads"),
)
"""Source files needed by a session in memory from the operating system."""


@pytest.mark.parametrize("kind", ["sanitized", "counted"])
def test_a_session_lives_in_its_callers_memory(tmp_path: Path, kind: str) -> None:
    program, backend = compile_for(point_graph(), device_of("avx2", 3))
    for name, text in generate(program, backend).items():
        (tmp_path / name).write_text(text)
    copy_runtime(tmp_path / "runtime")
    params = {name: param.data for name, param in program.params.items()}
    save_file({**params, **program.constants}, tmp_path / "weights")
    runtime = tmp_path / "runtime"
    (tmp_path / "main.c").unlink()
    (tmp_path / "caller.c").write_text(CALLER)
    flags: tuple[str, ...] = SANITIZED
    if kind == "counted":
        (tmp_path / "counter.c").write_text(COUNTER)
        flags = ("-O1", *(f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")))
    sources = [*tmp_path.glob("*.c"), *runtime_sources(runtime)]
    compiler = ["gcc", *COMMON, *flags, *WARNINGS, "-march=x86-64-v3"]
    build_executable(sources, compiler, runtime, tmp_path / "caller")
    done = subprocess.run(
        [str(tmp_path / "caller"), str(tmp_path / "weights")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("PE_TEAM_BYTES 2304", "PE_TEAM_BYTES 2240"),  # sessions are smaller
        ("PE_TEAM_BYTES 2304", "PE_TEAM_BYTES 4096"),
        (f"#define PE_ABI {ABI}", f"#define PE_ABI {ABI + 1}"),
    ],
)
def test_callers_of_another_header_are_refused(tmp_path: Path, there: str, here: str) -> None:
    program, backend = compile_for(point_graph(), device_of("avx2", 3))
    for name, text in generate(program, backend).items():
        (tmp_path / name).write_text(text)
    copy_runtime(tmp_path / "theirs")
    (tmp_path / "main.c").unlink()
    compiler = ["gcc", *COMMON, "-O1", "-march=x86-64-v3"]
    sources = [*tmp_path.glob("*.c"), *runtime_sources(tmp_path / "theirs")]
    objects = [object_of(source, compiler, tmp_path / "theirs") for source in sources]
    copy_runtime(tmp_path / "mine")
    header = tmp_path / "mine" / "core" / "pe.h"
    text = header.read_text()
    assert text.count(there) == 1
    header.write_text(text.replace(there, here))
    (tmp_path / "caller.c").write_text(OTHER_CALLER)
    caller = object_of(tmp_path / "caller.c", compiler, tmp_path / "mine")
    link([*objects, caller], compiler, tmp_path / "caller")
    done = subprocess.run([str(tmp_path / "caller")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("5 the caller was compiled for interface")  # PE_ERROR_MISMATCH


@pytest.mark.parametrize("size", ["SIZE_MAX", "SIZE_MAX / 2"])
def test_sizes_at_the_end_of_the_address_space_do_not_wrap(tmp_path: Path, size: str) -> None:
    (tmp_path / "huge.c").write_text(HUGE.replace("BYTES,", f"{size},"))
    sources = [tmp_path / "huge.c", *(runtime_file(f"{name}.c") for name in RUNTIME_PARTS)]
    compiler = ["gcc", *COMMON, "-fsanitize=undefined"]
    build_executable(sources, compiler, RUNTIME, tmp_path / "huge")
    done = subprocess.run([str(tmp_path / "huge")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot map 64 bytes of params and" in done.stdout
    assert "Cannot allocate memory" in done.stdout
