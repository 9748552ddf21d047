"""Kill processes that save checkpoints at random moments; each remaining file must be complete.

python -m pockengine.tests.backends.c.kills --count 1000
"""

import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from pockengine.backends.native.runtime_files import RUNTIME, runtime_sources
from pockengine.tests.backends.c.harness import COMMON, WARNINGS
from pockengine.tests.backends.c.objects import build_executable

SAVER = r"""
#include <stdio.h>
#include "pe.h"
#include "pe_worker.h"

enum { COUNT = 1 << 16 };

static void run_nothing(pe_worker *w, unsigned char *params, const unsigned char *frozen,
                        unsigned char *arena) {
    (void)w, (void)params, (void)frozen, (void)arena;
}

static const pe_tensor params[] = {{"weight", PE_F32, 1, {COUNT}, 0, PE_WRITTEN | PE_FINITE, {0}}};
static const pe_entry entries[] = {{"train", NULL, NULL, NULL, 0, 0, 0, run_nothing}};
static const pe_program saver = {.abi = PE_ABI, .name = "saver", .params = params,
    .entries = entries, .param_count = 1, .entry_count = 1, .max_threads = 1,
    .params_bytes = COUNT * sizeof(float)};

static _Alignas(PE_ALIGN) pe_session session;
static _Alignas(PE_ALIGN) float weight[COUNT];
static _Alignas(PE_ALIGN) unsigned char arena[PE_ALIGN];

/* Goes on from the checkpoint, then saves one after the other: all elements are the step. */
int main(int count, char **arguments) {
    if (count != 2 || pe_init(&session, &saver, weight, arena, 1) != PE_OK) {
        return 2;
    }
    const pe_status status = pe_load_weights(&session, arguments[1]);
    if (status != PE_OK && status != PE_ERROR_SYSTEM) {
        fprintf(stderr, "%s\n", session.message);
        return 3;
    }
    for (;;) {
        const int64_t step = ++session.progress.steps;
        for (int i = 0; i < COUNT; i++) {
            weight[i] = (float)step;
        }
        if (pe_save_checkpoint(&session, arguments[1], PE_TRAINED) != PE_OK) {
            fprintf(stderr, "%s\n", session.message);
            return 4;
        }
    }
}
"""


@dataclass(frozen=True)
class KilledSaves:
    """Counts of kills, torn files and saved checkpoints, and the leftover files at the end."""

    kills: int
    torn: int
    saved: int
    leftovers: int


def build_saver(folder: Path) -> Path:
    """Compile a program that saves repeatedly until it is killed."""
    source, program = folder / "saver.c", folder / "saver"
    source.write_text(SAVER)
    sources = [source, *runtime_sources()]
    build_executable(sources, ["gcc", *COMMON, *WARNINGS, "-O1"], RUNTIME, program)
    return program


def steps_in(path: Path) -> int | None:
    """Return the step of a checkpoint, or None if it is torn."""
    try:
        weight = load_file(path)["weight"]
    except (OSError, KeyError, SafetensorError):
        return None
    return int(weight[0]) if (weight == weight[0]).all() and weight.size == 1 << 16 else None


def kill_savers(count: int, seed: int, folder: Path, savers: int = 2) -> KilledSaves:
    """Start processes that save to one path and kill them at a random moment, `count` times."""
    program, path = build_saver(folder), folder / "place" / "checkpoint"
    path.parent.mkdir()
    rng = np.random.default_rng(seed)
    kills = torn = saved = 0
    while kills < count:
        running = [subprocess.Popen([str(program), str(path)]) for _ in range(savers)]
        time.sleep(float(rng.uniform(0, 0.03)))
        for saver in running:
            saver.kill()
        codes = [saver.wait() for saver in running]
        kills += len(codes)
        if path.exists():
            step = steps_in(path)
            torn += step is None or any(code > 0 for code in codes)
            saved = max(saved, step or 0)
    return KilledSaves(kills, torn, saved, len(list(path.parent.iterdir())) - 1)


@click.command()
@click.option("--count", default=1000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    """Run the kills, and print how many files were torn."""
    with tempfile.TemporaryDirectory() as folder:
        click.echo(kill_savers(count, seed, Path(folder)))


if __name__ == "__main__":
    main()
