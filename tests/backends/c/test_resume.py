"""A training resumed from a checkpoint equals an uninterrupted one, bit for bit."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.backends.artifact import write_artifact
from pockengine.backends.c.backend import CBackend
from pockengine.backends.registry import open_session
from pockengine.compiler.ir import F32, I32, I64, Builder, Graph, TensorType
from pockengine.compiler.optim import (
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lamb,
    Lion,
    Muon,
    NAdam,
    RMSprop,
    Rprop,
    Sgd,
)
from pockengine.compiler.options import Training
from pockengine.compiler.sizes import Range
from pockengine.compiler.variants import compile_variants
from pockengine.devices.schema import load_device
from pockengine.tests.backends.c.resuming import SEED, STEPS, Case, new_case, same

OPTIMIZERS = {
    "sgd": Sgd(),
    "momentum": Sgd(momentum=0.9, nesterov=True),
    "adam": Adam(),
    "adamw": AdamW(weight_decay=0.1),
    "rmsprop": RMSprop(),
    "adagrad": Adagrad(),
    "lion": Lion(),
    "adafactor": Adafactor(),
    "dampening": Sgd(momentum=0.9, dampening=0.5),
    "nadam": NAdam(),
    "rprop": Rprop(),
    "muon": Muon(others=Lamb()),
}


@pytest.mark.parametrize(
    ("name", "micro_batches", "scheme"),
    [
        *((name, 1, "full") for name in OPTIMIZERS),
        ("adam", 3, "full"),
        ("momentum", 2, "full"),
        ("adam", 1, "lora"),
        ("adamw", 2, "lora"),
    ],
)
def test_resumed_equals_uninterrupted(
    tmp_path: Path, name: str, micro_batches: int, scheme: str
) -> None:
    case = new_case(tmp_path, OPTIMIZERS[name], micro_batches, scheme)
    data, weights = tmp_path / "data", case.artifact.weights
    save_file(
        {key: np.concatenate([b[key] for b in case.batches]) for key in ("x", "labels")}, data
    )
    with open_session(case.artifact) as session:
        losses = case.train(session, STEPS)
        final = session.params()
    for stop in (1, 4, 5):
        halfway, end = tmp_path / f"python-{stop}", tmp_path / f"end-{stop}"
        with open_session(case.artifact) as session:
            assert case.train(session, stop) == losses[:stop]
            session.save(halfway, whole=True)  # the runner has no other weights
        with open_session(case.artifact) as session:
            session.load(halfway)
            assert (session.steps, session.seed) == (stop, SEED)
            assert case.train(session, STEPS) == losses[stop:]
            same(session.params(), final)
        assert case.run(halfway, data, end, STEPS - stop) == losses[stop:]  # with the file's seed
        same({key: load_file(end)[key] for key in final}, final)
        by_runner = tmp_path / f"runner-{stop}"
        assert case.run(weights, data, by_runner, stop, "--seed", SEED) == losses[:stop]
        with open_session(case.artifact) as session:
            session.load(by_runner)
            assert case.train(session, STEPS) == losses[stop:]
            same(session.params(), final)


def test_a_training_of_varying_sizes_goes_on(tmp_path: Path) -> None:
    sizes = Range("batch", 1, 4, {"x": 0, "labels": 0}, (2, 4), {"labels": -100})

    def graph(size: int) -> Graph:
        whole = Graph("sized")
        g = Builder(whole)
        x, labels = g.input("x", TensorType(F32, (size, 8))), None
        labels = g.input("labels", TensorType(I64, (size,)))
        seed = g.input("seed", TensorType(I32, ()))
        weight = g.param("weight", np.ones((8, 3), np.float32))
        logits = g.matmul(g.dropout(x, seed, p=0.5, stream=0), weight)
        g.output("loss", g.cross_entropy(logits, labels))
        return whole

    backend = CBackend(load_device("host"))
    training = Training(optimizer=Adam(), micro_batches=2)
    program = compile_variants(graph, sizes, training, target=backend.target())
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    rng = np.random.default_rng(1)
    counts = (4, 1, 2, 3, 4, 2, 1, 3)
    batches = [
        {"x": rng.standard_normal((n, 8)).astype(np.float32), "labels": rng.integers(0, 3, n)}
        for n in counts
    ]
    case = Case(artifact, 2, batches)
    with open_session(artifact) as session:
        losses = case.train(session, STEPS)
        final = session.params()
    with open_session(artifact) as session:
        case.train(session, 3)
        session.save(tmp_path / "checkpoint")
    with open_session(artifact) as session:
        session.load(tmp_path / "checkpoint")
        assert case.train(session, STEPS) == losses[3:]
        same(session.params(), final)
