"""Fuzz every reader in Python: a damaged file gives a value or a PockEngineError.

python -m pockengine.tests.fuzz.readers --executions 100000
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine.backends.artifact import Artifact, load_artifact, write_artifact
from pockengine.backends.checkpoint import read_checkpoint, read_tensors
from pockengine.backends.checkpoint_file import load_checkpoint, save_checkpoint
from pockengine.backends.manifest import read_manifest
from pockengine.backends.rate_schedule import RateSchedule
from pockengine.backends.replace import check_replaceable
from pockengine.backends.session import Course, Progress
from pockengine.backends.training.checkpoints import LOG, Checkpoints
from pockengine.backends.training.history import Epoch, History, to_lines
from pockengine.backends.training.loop import Step
from pockengine.backends.tuned import TunedPlan, new_table, read_table, write_table
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.sparse.choice import parse_choice
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.sparse.scheme import Scheme, load_scheme
from pockengine.devices.schema import FOLDER, load_device, read_device
from pockengine.farm.boards.board import BUILT_IN, load_boards
from pockengine.farm.cli.jobs import read_jobs
from pockengine.finetune.contributions import Item, open_table
from pockengine.finetune.contributions import read_table as read_contributions
from pockengine.finetune.lm.texts import read_examples
from pockengine.finetune.task import load_examples
from pockengine.finetune.trial import TrialOutcome
from pockengine.frontends.peft.files import CONFIG, WEIGHTS, TunedParams, save_adapters
from pockengine.frontends.peft.load import load_adapters
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph, point_graph
from pockengine.tests.fuzz.damage import Reader, command

SCHEME = """default = "frozen"
[params]
"*.bias" = "full"
"a" = 0.25
"b" = [0, 32]
"c" = { share = 0.25, by = "random", seed = 3 }
"d" = { channels = [1, 5, 7] }
"e" = { lora = 8, alpha = 16 }
"""

JOBS = """[[job]]
name = "one"
program = "rpi4.toml"
args = ["--x", "3"]
inputs = { "a.bin" = "scheme.toml" }
outputs = ["out"]
time_limit_s = 3.5
device = "host"
"""


def readers(place: Path) -> Mapping[str, Reader]:
    """Write a valid file for each reader into an empty folder."""
    artifact = _artifact(place / "net")
    manifest = artifact.folder / "manifest.json"
    checkpoint = Path(shutil.copy(artifact.weights, place / "checkpoint"))
    text = place / "graph.ir"
    program, _ = compile_for(convolutional_graph(), load_device("rpi4"))
    text.write_text(print_graph(program.entries["train"].graph), encoding="utf-8")
    scheme, device = place / "scheme.toml", place / "rpi4.toml"
    scheme.write_text(SCHEME)
    shutil.copy(FOLDER / "rpi4.toml", device)
    npz, tensors = _data(place)
    return {
        "manifest": Reader(manifest, lambda: read_manifest(artifact.folder)),
        "artifact": Reader(manifest, lambda: load_artifact(artifact.folder)),
        "replaced artifact": Reader(manifest, lambda: check_replaceable(artifact.folder)),
        "checkpoint": Reader(checkpoint, lambda: read_checkpoint(artifact, checkpoint)),
        "graph": Reader(text, lambda: _parse(text)),
        "scheme": Reader(scheme, lambda: load_scheme(scheme)),
        "device": Reader(device, lambda: read_device(device)),
        "tuned plans": _tuned(place),
        "contributions": _contributions(place),
        "npz": Reader(npz, lambda: load_examples(npz)),
        "safetensors data": Reader(tensors, lambda: load_examples(tensors)),
        **_adapters(place),
        **_trainings(place, artifact),
        **_farm(place),
    }


def _artifact(folder: Path) -> Artifact:
    program, backend = compile_for(point_graph(8), load_device("rpi4"))
    return write_artifact(program, backend, folder, build_code=False)


def _parse(path: Path) -> object:
    return parse_graph(path.read_bytes().decode(errors="replace"))


def _data(place: Path) -> tuple[Path, Path]:
    arrays = {"x": np.ones((4, 3), np.float32), "target": np.arange(4)}
    np.savez_compressed(place / "data.npz", **arrays)
    save_file(arrays, place / "data.safetensors")
    return place / "data.npz", place / "data.safetensors"


def _trainings(place: Path, artifact: Artifact) -> dict[str, Reader]:
    """Write the files of a training, and texts for a decoder."""
    sealed, log, texts = place / "sealed", place / LOG, place / "texts.jsonl"
    params = read_tensors(artifact.weights)
    schedule = RateSchedule("polynomial", 0.1, steps=9, warmup=2, factor=2.0)
    progress = Progress(3, 3, 0, 7, Course(schedule, rows=24, batch=8))
    save_checkpoint(artifact, params, params.keys(), progress, sealed)
    history = History([Step(1, 1, 0.5, 0.1, 8, ends_epoch=True)], [Epoch(1, 1, {"loss": 0.5})])
    log.write_text("".join(f"{line}\n" for line in to_lines(history)))
    texts.write_text('{"messages": [{"role": "user", "content": "a"}]}\n{"text": "b"}\n')
    return {
        "sealed checkpoint": Reader(sealed, lambda: load_checkpoint(artifact, sealed)),
        "history": Reader(log, lambda: Checkpoints(place).history(9)),
        "texts": Reader(texts, lambda: read_examples(texts)),
    }


def _farm(place: Path) -> dict[str, Reader]:
    jobs, boards = place / "jobs.toml", place / "boards.toml"
    jobs.write_text(JOBS)
    shutil.copy(BUILT_IN, boards)
    known = load_boards([BUILT_IN])
    return {
        "jobs": Reader(jobs, lambda: read_jobs(jobs, known)),
        "boards": Reader(boards, lambda: load_boards([boards])),
    }


def _tuned(place: Path) -> Reader:
    path, device = place / "tuned.json", load_device("rpi4")
    row = TunedPlan("ROWS 8x3x16", 100, "ROWS 4x3x16", 120, "0" * 16)
    write_table(new_table(device, "guest instructions").with_rows({"matmul f32[2,3]": row}), path)
    return Reader(path, lambda: read_table(path, device))


def _contributions(place: Path) -> Reader:
    path = place / "contributions.jsonl"
    with open_table(path, {"model": "net", "seeds": [0, 1]}) as table:
        table.add(None, 0, TrialOutcome(0.5, 0.7, 10, 1.5, False))
        table.add(
            Item("weight", "fc.weight", 0.5, "magnitude"), 0, TrialOutcome(0.6, 0.7, 10, 1.5, True)
        )
    return Reader(path, lambda: read_contributions(path))


def _adapters(place: Path) -> dict[str, Reader]:
    forward = convolutional_graph()
    name = next(n for n, p in forward.params.items() if n.endswith(".weight") and p.data.ndim == 2)
    scheme = Scheme("lora", ((name, parse_choice({"lora": 2, "alpha": 4}, "")),))
    graph, trained, adapters = with_adapters(forward, scheme)
    tuning = TunedParams(graph, adapters, tuple(trained))
    folder = place / "adapter"
    save_adapters(tuning, {n: param.data for n, param in graph.params.items()}, folder)
    return {
        f"adapter {name}": Reader(folder / name, lambda: load_adapters(tuning, folder))
        for name in (CONFIG, WEIGHTS)
    }


if __name__ == "__main__":
    command(readers, __doc__)
