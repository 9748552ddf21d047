"""No value of any argument of a public function does harm; all under sanitizers."""

import os
import subprocess
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.native.program import generate
from pockengine.backends.native.runtime_files import copy_runtime, runtime_sources
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS, device_of
from pockengine.tests.backends.c.misuse import FUNCTIONS, cases, declared
from pockengine.tests.backends.c.objects import build_executable
from pockengine.tests.backends.c.programs import compile_for

CALLER = r"""
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pe_host.h"
#include "pe_program_misused.h"
#include "pe_train.h"

#define PROGRAM (&pe_program_misused)
#define FAIL(why) (printf("%s: %s (%s)\n", now, why, session.message), failures++)
#define CHECK(what) (void)((what) || FAIL(#what))
#define BEGIN(call) now = call; calls++; begin()
#define STATUS(call, refused) check(call, refused)
#define END end()

static const char *now = "", *weights, *scratch;
static int calls, failures;
static char endless[70000], text[PE_MESSAGE_BYTES];
static _Alignas(PE_ALIGN) unsigned char params[1 << 16], before[1 << 16], arena[1 << 20];
static _Alignas(PE_ALIGN) unsigned char memory[(1 << 16) + 1], space[(1 << 20) + 1];
static pe_session session, never, ended, other;
static const pe_entry *train;
static pe_entry foreign;
static const pe_tensor *rate;
static float numbers[4096];
static pe_progress progress;
static pe_schedule schedule, own;
static const void *inputs[16];
static void *outputs[16];
static size_t sizes_in[16], sizes_out[16], many[16];
static pe_sizes good_sizes = {sizes_in, sizes_out, 0, 0};
static pe_event event;
static bool found;
static pe_place good_place = {.keep = 1};
static const pe_caller good_caller = {PE_ABI, sizeof(pe_session), text, sizeof text};

static pe_status read_batch(void *context, pe_session *s, int64_t step) {
    (void)context, (void)step;
    for (int i = 0; i < train->input_count; i++) {
        memset(pe_tensor_data(s, &train->inputs[i]), 0, pe_tensor_bytes(&train->inputs[i]));
    }
    return PE_OK;
}

static pe_training good_training = {.read = read_batch, .until = 2};

static void begin(void) {
    const pe_controls controls = {0.01f, 1, 0};
    CHECK(pe_init(&session, PROGRAM, params, arena, 2) == PE_OK);
    session.schedule = &own;
    CHECK(pe_load_weights(&session, weights) == PE_OK);
    CHECK(pe_save_checkpoint(&session, scratch, PE_TRAINED) == PE_OK);
    read_batch(NULL, &session, 1);
    pe_set_controls(&session, train, &controls);
    pe_get_progress(&session, &progress, &schedule);
    memcpy(before, params, sizeof params);
    session.message[0] = '\0';
}

static void check(pe_status status, bool refused) {
    if (!refused) {
        CHECK(status == PE_OK);
        return;
    }
    CHECK(status != PE_OK);
    CHECK(memcmp(before, params, sizeof params) == 0);
    CHECK(session.progress.steps == progress.steps || strstr(now, "progress"));
}

static void end(void) {
    if (session.program) {
        session.progress = (pe_progress){0};
        session.schedule = &own;
        own = (pe_schedule){0};
        read_batch(NULL, &session, 1);
        CHECK(pe_train_next(&session, &event) == PE_OK && event.step == 1);
        CHECK(isfinite(event.loss));
        pe_close(&session);
    }
    pe_close(&other);
}

static void use_all(void) {
CASES
}

static void prepare(void) {
    memset(endless, 'a', sizeof endless - 1);
    train = pe_find_entry(PROGRAM, "train");
    foreign = *train;
    for (int i = 0; i < train->input_count; i++) {
        sizes_in[i] = pe_tensor_bytes(&train->inputs[i]);
        rate = strcmp(train->inputs[i].name, "lr") == 0 ? &train->inputs[i] : rate;
    }
    for (int i = 0; i < 16; i++) {
        outputs[i] = numbers;
        sizes_out[i] = i < train->output_count ? pe_tensor_bytes(&train->outputs[i]) : 0;
    }
    inputs[0] = numbers;
    good_sizes.input_count = train->input_count;
    good_sizes.output_count = train->output_count;
    good_training.place = good_place = (pe_place){.path = scratch, .keep = 1};
    pe_init(&ended, PROGRAM, params, arena, 2);
    pe_close(&ended);
    pe_close(&ended);
}

int main(int count, char **arguments) {
    if (count != 3) {
        return 2;
    }
    weights = arguments[1];
    scratch = arguments[2];
    prepare();
    use_all();
    printf("%d calls\n", calls);
    return failures != 0;
}
"""


def misused_graph() -> Graph:
    """A classifier with a frozen bias and index labels."""
    graph = Graph("misused")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (4, 3)))
    labels = g.input("labels", TensorType(I64, (4,)))
    bias = g.param("b", np.ones(5, np.float32), trainable=False)
    logits = g.add(g.matmul(x, g.param("w", np.ones((3, 5), np.float32))), bias)
    g.output("logits", logits)
    g.output("loss", g.cross_entropy(logits, labels))
    return graph


def test_every_public_function_is_in_the_table() -> None:
    expected = {name: len(function.arguments) for name, function in FUNCTIONS.items()}
    assert declared() == expected
    tried = {name: min(map(len, f.arguments), default=2) for name, f in FUNCTIONS.items()}
    assert [name for name, values in tried.items() if values < 2] == []


def test_no_argument_does_harm(tmp_path: Path) -> None:
    program, backend = compile_for(misused_graph(), device_of("avx2", 3))
    for name, text in generate(program, backend).items():
        (tmp_path / name).write_text(text)
    copy_runtime(tmp_path / "runtime")
    (tmp_path / "main.c").unlink()
    (tmp_path / "caller.c").write_text(CALLER.replace("CASES", cases()))
    params = {name: param.data for name, param in program.params.items()}
    save_file({**params, **program.constants}, tmp_path / "weights")
    os.mkfifo(tmp_path / "fifo")
    runtime = tmp_path / "runtime"
    sources = [*tmp_path.glob("*.c"), *runtime_sources(runtime)]
    flags = (*SANITIZED, *WARNINGS, "-Wno-nonnull", "-Wno-format", "-march=x86-64-v3")
    build_executable(sources, ["gcc", *COMMON, *flags], runtime, tmp_path / "caller")
    done = subprocess.run(
        [str(tmp_path / "caller"), str(tmp_path / "weights"), str(tmp_path / "scratch")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
