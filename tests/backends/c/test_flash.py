"""Programs without an operating system: weights are compiled in, results are equal bit for bit."""

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.sparse.choice import FULL
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices.schema import Cpu, Device, ToolchainSpec
from pockengine.errors import CompileError
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph

STEPS = 3
SCHEME = Scheme("head", (("norm.*", FULL), ("head.*", FULL)))

COMMON = r"""
#include "pe_program_small_cnn.h"

static float x[4 * 12 * 12 * 3], losses[STEPS];
static int64_t labels[4] = {0, 4, 2, 1};

static pe_status train(pe_session *session) {
    for (int i = 0; i < (int)(sizeof x / sizeof *x); i++) {
        x[i] = (float)(i % 17) * 0.125f - 1.0f;
    }
    const void *inputs[PE_SMALL_CNN_TRAIN_INPUT_COUNT] = {0};
    void *outputs[PE_SMALL_CNN_TRAIN_OUTPUT_COUNT] = {0};
    inputs[PE_SMALL_CNN_TRAIN_INPUT_X] = x;
    inputs[PE_SMALL_CNN_TRAIN_INPUT_LABELS] = labels;
    pe_status status = PE_OK;
    for (int step = 0; status == PE_OK && step < STEPS; step++) {
        const pe_controls controls = {0.05f, step + 1, 0};
        outputs[PE_SMALL_CNN_TRAIN_OUTPUT_LOSS] = &losses[step];
        status = pe_train_step(session, inputs, &controls, outputs);
    }
    return status;
}
"""

HOSTED = r"""
#include <stdio.h>
#include "pe_host.h"

int main(int count, char **arguments) {
    char message[PE_MESSAGE_BYTES];
    pe_session *session = pe_open(&pe_program_small_cnn, 1, message);
    if (count != 2 || !session || pe_load_weights(session, arguments[1]) || train(session)) {
        return 1;
    }
    fwrite(losses, 1, sizeof losses, stdout);
    fwrite(session->params, 1, PE_SMALL_CNN_PARAMS_BYTES, stdout);
    return 0;
}
"""

BARE = r"""
static pe_session session;
static _Alignas(PE_ALIGN) unsigned char params[PE_SMALL_CNN_PARAMS_BYTES];
static _Alignas(PE_ALIGN) unsigned char arena[PE_SMALL_CNN_ARENA_BYTES];

static long call(long number, long a, const void *b, unsigned long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

/* Whether what lies in flash refuses to be set. */
static bool is_kept(void) {
    for (int i = 0; i < pe_program_small_cnn.param_count; i++) {
        const pe_tensor *param = &pe_program_small_cnn.params[i];
        const void *data = pe_param_data(&session, param);
        const pe_status status = pe_set_param(&session, param->name, data, pe_tensor_bytes(param));
        if (status != (param->flags & PE_WRITTEN ? PE_OK : PE_ERROR_ARGUMENT)) {
            return false;
        }
    }
    return true;
}

__attribute__((used)) static void run(void) {
    if (pe_init(&session, &pe_program_small_cnn, params, arena, 4) == PE_OK && is_kept() &&
        train(&session) == PE_OK) {
        call(1, 1, losses, sizeof losses);
        call(1, 1, params, sizeof params);
        call(60, 0, 0, 0);
    }
    call(1, 2, session.message, sizeof session.message);
    call(60, 1, 0, 0);
}

__attribute__((naked)) void _start(void) { __asm__("andq $-16, %rsp\n\tcall run"); }
"""


def device_of(target: str, cpu: str, arch: str, flash_bytes: int) -> Device:
    """A microcontroller, or the same device with files."""
    processor = Cpu(arch, cpu, 1, "scalar", 32, 16384, 0, 0)
    return Device(
        "micro", "", 320 << 10, processor, ToolchainSpec(target, cpu), flash_bytes=flash_bytes
    )


MICRO = device_of("x86_64-freestanding-none", "x86_64_v3", "x86_64", 1 << 20)
TWIN = device_of("native", "x86_64_v3", "x86_64", 0)
CORTEX = device_of("thumb-freestanding-eabihf", "cortex_m7+fp_armv8d16sp", "thumb", 1 << 20)


def compiled(device: Device, folder: Path) -> Artifact:
    """The artifact of a small net whose convolutions are frozen."""
    training = Training(SCHEME, Sgd(momentum=0.9))
    program, backend = compile_for(convolutional_graph(), device, training)
    return write_artifact(program, backend, folder)


def result(device: Device, main: str, folder: Path, *arguments: Path) -> bytes:
    """Link a main function with an artifact's archive, and return the program's output."""
    source = folder / "own_main.c"
    source.write_text(f"#define STEPS {STEPS}\n{COMMON}{main}")
    toolchain = find_toolchain(device)
    command = [
        *toolchain.command,
        "-O1",
        "-g0",
        f"-I{folder / 'artifact' / 'include'}",
        str(source),
    ]
    command += [str(next((folder / "artifact" / "lib").glob("*.a"))), "-o", str(folder / "run")]
    subprocess.run(command, check=True, env=toolchain.environment)
    ran = subprocess.run(
        [str(folder / "run"), *map(str, arguments)], capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_program_without_libc_trains_as_its_twin_with_files(tmp_path: Path) -> None:
    (tmp_path / "micro").mkdir()
    (tmp_path / "twin").mkdir()
    micro = compiled(MICRO, tmp_path / "micro" / "artifact")
    twin = compiled(TWIN, tmp_path / "twin" / "artifact")
    assert micro.frozen_bytes == twin.frozen_bytes > 0
    assert micro.params_bytes == twin.params_bytes > 0
    bare = result(MICRO, BARE, tmp_path / "micro")
    hosted = result(TWIN, HOSTED, tmp_path / "twin", twin.weights)
    losses = np.frombuffer(bare[: 4 * STEPS], np.float32)
    assert bare == hosted
    assert losses[-1] < losses[0]


def test_a_cortex_program_says_what_it_takes(tmp_path: Path) -> None:
    artifact = compiled(CORTEX, tmp_path / "artifact")
    lines = (artifact.folder / "lib" / "memory.txt").read_text().splitlines()
    sizes = {
        name.strip(): int(size.replace(",", ""))
        for size, _, name in (line.strip().partition("  ") for line in lines)
        if name
    }
    assert sizes["frozen weights"] == artifact.frozen_bytes
    assert sizes["weights and states that training writes"] == artifact.params_bytes
    assert 0 < sizes["first values of what is trained"] < artifact.params_bytes  # no momentum
    assert sizes["code"] > 10_000
    flash = sum(sizes[name] for name in list(sizes)[:4])
    with pytest.raises(CompileError, match=r"micro lacks 1 bytes of flash; use a smaller model"):
        compiled(replace(CORTEX, flash_bytes=flash - 1), tmp_path / "small")
    assert not (tmp_path / "small").exists()
