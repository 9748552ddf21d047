"""The thread pool: barriers work under stress, by count and under the thread sanitizer."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pockengine.backends.native.build import compile_flags, link_flags
from pockengine.backends.native.runtime_files import NODE_SCRIPT, RUNTIME, runtime_file
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.devices import load_device
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS
from pockengine.tests.backends.c.objects import build_executable, link, object_of
from pockengine.tests.backends.c.programs import build_sanitized, convolutional_graph

STRESS = r"""
#include <stdio.h>
#include <string.h>
#include "pe_pool.h"

enum { ROUNDS = 2000, JOBS = 20 };
static long total[PE_MAX_THREADS], wrong;

/* Each round every thread adds to its own number, then all check all. */
static void job(pe_worker *w, void *argument) {
    const int rounds = *(const int *)argument;
    for (int round = 0; round < rounds; round++) {
        total[w->index]++;
        pe_barrier(w);
        for (int i = 0; i < w->count; i++) {
            if (total[i] != total[w->index] && w->index == 0) {
                wrong++;
            }
        }
        pe_barrier(w);
    }
}

int main(void) {
    static pe_team team;
    for (int count = 1; count <= 5; count++) {
        memset(total, 0, sizeof total);
        if (pe_team_start(&team, count) != 0 || team.count != count) {
            return 2;
        }
        for (int i = 0; i < JOBS; i++) {
            const int rounds = i % 3 ? ROUNDS / JOBS : 0; /* also jobs without a barrier */
            pe_team_run(&team, job, (void *)&rounds);
        }
        pe_team_stop(&team);
        printf("%d %ld %ld\n", count, total[0], wrong);
    }
    return wrong != 0;
}
"""

COVER = r"""
#include <stdio.h>
#include "pe_worker.h"

int main(void) {
    for (int count = 1; count <= 7; count++) {
        for (int total = 0; total < 70; total++) {
            for (int grain = 1; grain < 20; grain += 3) {
                ptrdiff_t next = 0;
                for (int index = 0; index < count; index++) {
                    const pe_worker w = {index, count, NULL};
                    const pe_range share = pe_split(&w, total, grain);
                    if (share.begin != next || share.end < share.begin ||
                        (share.begin % grain && share.begin != total)) {
                        return 1;
                    }
                    next = share.end;
                }
                if (next != total) {
                    return 2;
                }
            }
        }
    }
    return 0;
}
"""


def build(folder: Path, text: str, flags: Sequence[str]) -> Path:
    source, program = folder / "test.c", folder / "test"
    source.write_text(text)
    compiler = ("gcc", *COMMON, *WARNINGS, *flags)
    build_executable(
        [source, runtime_file("pe_pool.c"), runtime_file("pe_threads.c")],
        compiler,
        RUNTIME,
        program,
    )
    return program


def run_sanitized(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program that must succeed; skip if tsan rejects the kernel's address layout."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("gcc's thread sanitizer cannot start here: sysctl vm.mmap_rnd_bits=28")
    assert done.returncode == 0, done.stdout + done.stderr[:4000]
    return done


@pytest.mark.parametrize("flags", [("-O2",), ("-O1", "-fsanitize=thread")], ids=["plain", "tsan"])
@pytest.mark.parametrize("spins", [(), ("-DPE_SPINS=0",)], ids=["spinning", "sleeping"])
def test_no_thread_passes_a_barrier_early(
    tmp_path: Path, flags: Sequence[str], spins: Sequence[str]
) -> None:
    program = build(tmp_path, STRESS, (*flags, *spins))
    done = run_sanitized([str(program)])
    assert [line.split()[0] for line in done.stdout.splitlines()] == list("12345")


@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs for WebAssembly")
def test_no_thread_of_webassembly_passes_a_barrier_early(tmp_path: Path) -> None:
    device, program = load_device("wasm32-threads"), tmp_path / "test.wasm"
    compiler = find_toolchain(device)
    flags = (*compiler.command, *compile_flags(device), *WARNINGS, "-DPE_SPINS=0")
    (tmp_path / "test.c").write_text(STRESS)
    parts = ("pe_pool.c", "pe_threads.c", "pe_threads_wasm.c")
    sources = [tmp_path / "test.c", *(runtime_file(name) for name in parts)]
    objects = [object_of(one, flags, RUNTIME, environment=compiler.environment) for one in sources]
    link(objects, [*flags, *link_flags(device)], program, compiler.environment)

    done = run_sanitized(["node", str(NODE_SCRIPT), str(program)])

    assert [line.split()[0] for line in done.stdout.splitlines()] == list("12345")


def test_shares_cover_the_work_once_in_order(tmp_path: Path) -> None:
    program = build(tmp_path, COVER, ("-O1", "-fsanitize=undefined"))
    assert subprocess.run([str(program)], check=False).returncode == 0


def test_the_pool_builds_without_threads(tmp_path: Path) -> None:
    text = STRESS.replace("count <= 5", "count <= 1")
    program = build(tmp_path, text, ("-O1", "-DPE_NO_THREADS"))
    assert subprocess.run([str(program)], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("flags", [SANITIZED, ("-O1", "-fsanitize=thread")], ids=["asan", "tsan"])
def test_a_whole_step_touches_only_its_memory_and_never_races(
    tmp_path: Path, flags: Sequence[str]
) -> None:
    runner, program = build_sanitized(convolutional_graph(), tmp_path, flags)
    rng = np.random.default_rng(0)
    weights, data = tmp_path / "weights", tmp_path / "data"
    params = {name: param.data for name, param in program.params.items()}
    save_file({**params, **program.constants}, weights)
    x = rng.standard_normal((8, 12, 12, 3)).astype(np.float32)
    save_file({"x": x, "labels": rng.integers(0, 5, 8)}, data)
    command = [str(runner), "train", "--weights", str(weights), "--data", str(data)]
    command += ["--steps", "4", "--lr", "0.1", "--threads", "3"]
    run_sanitized(command)
