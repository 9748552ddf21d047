"""Frozen weights stay in the mapped file: sessions share the pages, and writes are private."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.options import Training
from pockengine.compiler.sparse.choice import FULL
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices.schema import load_device
from pockengine.tests.backends.c.programs import compile_for

X = {"x": np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)}


def frozen_graph() -> Graph:
    """A large frozen layer, a small odd one, and a head that trains."""
    rng = np.random.default_rng(3)
    graph = Graph("frozen")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (4, 64)))
    large = g.param("large", rng.standard_normal((64, 2048)).astype(np.float32))
    odd = g.param("odd", rng.standard_normal(3).astype(np.float32))
    head = g.param("head", rng.standard_normal((2048, 3)).astype(np.float32))
    y = g.add(g.matmul(g.relu(g.matmul(x, large)), head), odd)
    g.output("y", y)
    g.output("loss", g.reduce_mean(g.square(y), axes=(0, 1), keepdims=False))
    return graph


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    training = Training(Scheme("head", (("head", FULL),)))
    program, backend = compile_for(frozen_graph(), load_device("host"), training)
    return write_artifact(program, backend, tmp_path_factory.mktemp("frozen") / "artifact")


@pytest.fixture
def session(artifact: Artifact) -> Iterator[Session]:
    with open_session(artifact) as opened:
        yield opened


def mapped_bytes(path: Path, field: str) -> int:
    """Sum a field of this process's mappings of a file, in bytes; -1 without such a mapping."""
    total, inside, seen = 0, False, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.split(maxsplit=1)[0].endswith(":"):
            total += int(line.split()[1]) * 1024 if inside and line.startswith(f"{field}:") else 0
        else:
            inside = line.endswith(str(path))
            seen |= inside
    return total if seen else -1


def test_a_step_writes_no_page_of_the_weights_file(artifact: Artifact, session: Session) -> None:
    large = artifact.params["large"].type.nbytes
    head = artifact.params["head"].type.nbytes
    sizes = [spec.type.nbytes for spec in artifact.params.values()]
    assert (artifact.params_bytes, artifact.frozen_bytes) == (head, sum(sizes) - head)
    with artifact.weights.open("rb") as file:
        os.fdatasync(file.fileno())  # pages that are not written back yet count as dirty
    session.train_step(X, lr=0.1)
    assert mapped_bytes(artifact.weights, "Size") >= large
    assert mapped_bytes(artifact.weights, "Rss") >= large
    assert mapped_bytes(artifact.weights, "Private_Dirty") == 0


def test_a_frozen_weight_that_is_set_is_the_sessions_own(
    artifact: Artifact, session: Session
) -> None:
    before = load_file(artifact.weights)
    with open_session(artifact) as other:
        session.set_param("odd", np.zeros(3, np.float32))
        assert 0 < mapped_bytes(artifact.weights, "Private_Dirty") < before["large"].nbytes
        y, unchanged = (np.asarray(one.predict(X)["y"]) for one in (session, other))
        np.testing.assert_allclose(unchanged - before["odd"], y, rtol=1e-5, atol=1e-5)
        assert np.array_equal(other.get_param("odd"), before["odd"])
    assert np.array_equal(load_file(artifact.weights)["odd"], before["odd"])


def test_weights_of_files_that_lie_otherwise_are_copied(
    artifact: Artifact, session: Session, tmp_path: Path
) -> None:
    weights = load_file(artifact.weights)
    doubled = {name: 2 * data for name, data in weights.items()}
    path = tmp_path / "doubled"
    save_file(doubled, path)  # sorted by name: odd comes after large, whose end is not aligned
    session.load(path)
    assert mapped_bytes(path, "Size") == -1
    assert all(np.array_equal(session.get_param(name), doubled[name]) for name in doubled)
    session.load(artifact.weights)
    assert mapped_bytes(artifact.weights, "Private_Dirty") == 0
    assert all(np.array_equal(session.get_param(name), weights[name]) for name in weights)


def test_a_whole_checkpoint_brings_its_own_frozen_weights(
    artifact: Artifact, session: Session, tmp_path: Path
) -> None:
    session.set_param("large", np.ones((64, 2048), np.float32))
    session.train_step(X, lr=0.1)
    session.save(tmp_path / "whole", whole=True)
    expected = session.predict(X)["y"]
    with open_session(artifact) as other:
        other.load(tmp_path / "whole")
        assert np.array_equal(other.predict(X)["y"], expected)
