"""Costs of a scheme: planned memory, step time on this machine, instructions on the board."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from pockengine import compile
from pockengine.backends.registry import open_session
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.sparse import Scheme
from pockengine.farm.references.instructions import count
from pockengine.finetune.subject import Subject, load_subject
from pockengine.finetune.task import TARGET, Examples
from pockengine.finetune.trial import compiled
from pockengine.finetune.trial_job import put_subject
from pockengine.studies.sparse.desk import Desk, LoadedPair, rules_digest
from pockengine.studies.sparse.machine import machine
from pockengine.studies.turns import Spread, step_times

BOARD = "rpi4"


def measure_steps(desk: Desk, table: LoadedPair, schemes: Sequence[Scheme]) -> None:
    """Time a training step of every scheme on one thread, in turns; store new times.

    No other part of the study may run at the same time.
    """
    keys = [_key("step", table, scheme) for scheme in schemes]
    if all(desk.journal.get(key) is not None for key in keys):
        return
    optimizer = table.model.optimizer
    batch = _first_batch(table.task.tuning.train, table.subject.batch)
    times = time_steps(table.subject, schemes, optimizer, batch, desk.places.cache)
    for key, spread in zip(keys, times, strict=True):
        facts = {"machine": machine(), "commit": desk.commit}
        desk.journal.put(key, {**asdict(spread), **facts})


def time_steps(
    subject: Subject,
    schemes: Sequence[Scheme],
    optimizer: Optimizer,
    batch: Mapping[str, np.ndarray],
    folder: Path,
) -> list[Spread]:
    """Return each scheme's step time; the schemes take turns, and one round warms up."""
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(
                open_session(compiled(subject, scheme, optimizer, folder), threads=1)
            )
            for scheme in schemes
        ]
        return step_times(sessions, batch, time.perf_counter)


def count_instructions(desk: Desk, table: LoadedPair, schemes: Sequence[Scheme]) -> None:
    """Count the guest instructions of a step on the emulated board, once per scheme."""
    missing = {}
    for scheme in schemes:
        key = _key("instructions", table, scheme)
        if desk.journal.get(key) is None:
            subject = put_subject(desk.places.cache, table.subject)
            batch = _first_batch(table.task.tuning.train, table.subject.batch)
            missing[scheme.name] = (
                key,
                desk.executor.submit(
                    instructions_of,
                    desk.places.cache / "subjects" / subject,
                    scheme,
                    table.model.optimizer,
                    batch,
                ),
            )
    for name, (key, future) in missing.items():
        steps = future.result()
        desk.journal.put(key, {"board": BOARD, "steps": steps, "commit": desk.commit})
        desk.tell(f"{table.pair} {name}: {steps[-1] / 1e6:.1f} M instructions a step on {BOARD}")


def instructions_of(
    folder: Path, scheme: Scheme, optimizer: Optimizer, batch: Mapping[str, np.ndarray]
) -> list[int]:
    """Compile a subject for the board and count two steps there, on one thread."""
    subject = load_subject(folder)
    with tempfile.TemporaryDirectory(prefix="pockengine-") as place:
        compiled = compile(
            subject.graph,
            (),
            optimizer=optimizer,
            scheme=scheme,
            device=BOARD,
            folder=Path(place) / "artifact",
        ).artifact
        data = Path(place) / "batch.safetensors"
        save_file({name: np.ascontiguousarray(rows) for name, rows in batch.items()}, data)
        arguments = [
            "train",
            "--weights",
            str(compiled.weights),
            "--data",
            str(data),
            "--steps",
            "2",
        ]
        command = [str(compiled.executable), *arguments, "--lr", "0.001", "--threads", "1"]
        return list(count(command, marks=2, timeout=1800).regions)


def _first_batch(examples: Examples, batch: int) -> dict[str, np.ndarray]:
    first = examples.take(np.arange(batch) % len(examples))
    return {**first.inputs, TARGET: first.labels}


def _key(kind: str, table: LoadedPair, scheme: Scheme) -> dict[str, str]:
    return {
        "kind": kind,
        "pair": str(table.pair),
        "scheme": scheme.name,
        "rules": rules_digest(scheme),
        "subject": table.subject.digest()[:12],
    }


def measure_costs(desk: Desk, table: LoadedPair, schemes: Sequence[Scheme]) -> None:
    """Plan every scheme's memory and store it, with the number of trained weights."""
    from pockengine.devices import load_device
    from pockengine.finetune.cost import CostModel

    missing = [s for s in schemes if desk.journal.get(_key("cost", table, s)) is None]
    if not missing:
        return
    model = CostModel(table.subject.graph, load_device("host"), table.model.optimizer)
    for scheme in missing:
        cost = asdict(model.cost(scheme))
        desk.journal.put(
            _key("cost", table, scheme),
            {**cost, "inference_bytes": model.inference_bytes, "commit": desk.commit},
        )
