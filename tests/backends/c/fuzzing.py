"""Fuzz the runtime's parsers under sanitizers for a given time.

python -m pockengine.tests.backends.c.fuzzing --seconds 600
"""

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from pockengine.backends.native.build import DECODER, OWN_FLAGS
from pockengine.backends.native.decoder import find_decoder
from pockengine.backends.native.runtime_files import RUNTIME, runtime_sources
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS
from pockengine.tests.backends.c.objects import link, object_of

FOLDER = Path(__file__).parent / "fuzz"
TARGETS = {"weights": 1, "data": 2, "options": 3, "arrays": 4, "jpeg": 5, "png": 6}
PARSERS = (
    *("pe_st_header", "pe_st_read", "pe_st_file", "pe_st_verify", "pe_checkpoint_load"),
    *(
        "pe_data",
        "pe_data_open",
        "pe_data_npy",
        "pe_data_npz",
        "pe_data_size",
        "pe_data_bad",
        "pe_options",
    ),
    *("pe_picture", "pe_picture_decode", "pe_picture_jpeg", "pe_picture_png"),
)
"""Files in which new edges are counted; the runtime's other files are linked without coverage."""


@dataclass(frozen=True)
class FuzzRun:
    """A run's progress, and a fault with its input and report, if any."""

    executions: int
    corpus: int
    edges: int
    fault: bytes | None
    report: str


def build_fuzzer(target: str, folder: Path) -> Path:
    """Compile one target with gcc and return the program."""
    base = ["gcc", *COMMON, *SANITIZED, "-O1", *WARNINGS]
    decoder, objects = find_decoder(), []
    for source in runtime_sources():
        own = ["-fsanitize-coverage=trace-pc"] if source.stem in PARSERS else []
        own += [*OWN_FLAGS.get(source.stem, ()), "-O1"]
        if source.stem == DECODER and decoder:
            own += ["-isystem", str(decoder.parent)]
            objects.append(object_of(source, [*base, *own], RUNTIME, [decoder.parent]))
        else:
            objects.append(object_of(source, [*base, *own], RUNTIME))
    chosen = f"-DPE_FUZZ={TARGETS[target]}"
    objects += [object_of(each, [*base, chosen], RUNTIME) for each in sorted(FOLDER.glob("*.c"))]
    program = folder / f"fuzz-{target}"
    link(objects, base, program)
    return program


def fuzz(target: str, seconds: int, seed: int, folder: Path) -> FuzzRun:
    """Run one target from its corpus; the same seed draws the same inputs."""
    program = build_fuzzer(target, folder)
    seeds = sorted(str(path) for path in (FOLDER / "corpus" / target).iterdir())
    done = subprocess.run(
        [str(program), str(seconds), str(seed), *seeds],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=seconds + 120,
    )
    if done.returncode != 0:
        fault = folder / "fault"
        return FuzzRun(0, 0, 0, fault.read_bytes() if fault.exists() else b"", done.stderr)
    return FuzzRun(**json.loads(done.stdout), fault=None, report="")


@click.command()
@click.option("--seconds", default=600, show_default=True, help="For each target.")
@click.option("--seed", default=1, show_default=True)
def main(seconds: int, seed: int) -> None:
    """Fuzz every target; print executions and faults, and save a faulty input in this folder."""
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = fuzz(target, seconds, seed, Path(folder))
        if outcome.fault is not None:
            Path(f"fault-{target}").write_bytes(outcome.fault)
            raise click.ClickException(f"{target}: see fault-{target}\n{outcome.report[:4000]}")
        click.echo(
            f"{target}: {outcome.executions} executions, {outcome.edges} edges, "
            f"{outcome.corpus} inputs kept, 0 faults"
        )


if __name__ == "__main__":
    main()
