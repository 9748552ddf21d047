"""Unusual uses of sessions: threads, forks, no close, invalid numbers."""

import gc
import os
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.native.library import check_cpu
from pockengine.backends.registry import open_session
from pockengine.backends.session import Session
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.devices.host import detect_isa
from pockengine.devices.schema import load_device
from pockengine.errors import ArtifactError, RuntimeFailure
from pockengine.tests.backends.c.programs import compile_for, point_graph
from pockengine.tests.backends.session_tests import SessionTests

X = {"x": np.zeros(300, np.float32)}


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    program, backend = compile_for(point_graph(), load_device("host"))
    return write_artifact(program, backend, tmp_path_factory.mktemp("sessions") / "point")


def threads_now() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def in_threads(count: int, work: object) -> list[BaseException]:
    """Run a function in concurrent threads; return the exceptions."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return raised


@pytest.mark.parametrize("team", [1, 2])
def test_threads_share_a_session_one_call_after_the_other(point: Artifact, team: int) -> None:
    with open_session(point, threads=team) as session:

        def work() -> None:
            for _ in range(50):
                session.train_step(X, lr=0.01)
                session.predict(X)
                session.params()

        assert not in_threads(4, work)
        assert session.steps == 200
        shared = session.get_param("point")
    with open_session(point, threads=team) as session:
        for _ in range(200):
            session.train_step(X, lr=0.01)
        np.testing.assert_array_equal(session.get_param("point"), shared)


def test_a_close_waits_for_the_step_of_another_thread(point: Artifact) -> None:
    for _ in range(20):
        session = open_session(point, threads=2)
        begun = threading.Event()

        def work(session: Session = session, begun: threading.Event = begun) -> None:
            while True:
                session.train_step(X, lr=0.01)
                begun.set()

        def close(session: Session = session, begun: threading.Event = begun) -> None:
            begun.wait(10)
            session.close()
            session.close()

        closer = threading.Thread(target=close)
        closer.start()
        raised = in_threads(3, work)
        closer.join()
        assert [type(error) for error in raised] == [RuntimeFailure] * 3
        assert all("closed" in str(error) for error in raised)


def test_a_forked_process_is_reported_to_open_its_own(point: Artifact) -> None:
    session = open_session(point, threads=2)
    session.train_step(X, lr=0.1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            session.train_step(X, lr=0.1)
        except RuntimeFailure as error:
            code = 0 if "open a session in this process" in str(error) else 2
        session.close()
        del session
        gc.collect()
        with open_session(point, threads=2) as own:
            own.train_step(X, lr=0.1)
        os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    session.train_step(X, lr=0.1)
    session.close()


def test_an_unclosed_session_ends_with_its_last_reference(point: Artifact) -> None:
    before = threads_now()
    for _ in range(30):
        open_session(point, threads=2).train_step(X, lr=0.1)
    gc.collect()
    assert threads_now() == before


def test_a_refused_step_does_not_count(point: Artifact) -> None:
    with open_session(point) as session:
        session.train_step(X, lr=0.1, seed=4)
        for inputs, rate in (({}, 0.1), ({"x": X["x"][1:]}, 0.1), (X, float("nan"))):
            with pytest.raises(RuntimeFailure):
                session.train_step(inputs, lr=rate, seed=5)
        with pytest.raises(RuntimeFailure, match="no entry 'update'"):
            session.run("update", {})
        assert (session.steps, session.updates, session.seed) == (1, 1, 4)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), 1e39, -0.1, 1e-60])
def test_a_rate_that_f32_cannot_hold_is_refused(point: Artifact, rate: float) -> None:
    with open_session(point) as session, pytest.raises(RuntimeFailure, match="lr must be"):
        session.train_step(X, lr=rate)


def test_params_that_diverged_are_not_saved(point: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with open_session(point) as session:
        session.train_step(X, lr=0.1)
        session.save(path)
        good = path.read_bytes()
        session.set_param("point", np.full(300, np.nan, np.float32))
        with pytest.raises(RuntimeFailure, match="point is not finite at element 0"):
            session.save(path)
    assert path.read_bytes() == good
    assert list(tmp_path.iterdir()) == [path]


def test_what_began_as_infinite_may_be_saved(tmp_path: Path) -> None:
    graph = Graph("least")
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (3,)))
    weight = g.param("weight", np.ones(3, np.float32))
    least = g.param("least", np.full(3, np.inf, np.float32), trainable=False)
    g.emit("ema_update", least, x, momentum=0.1)
    g.output("loss", g.reduce_mean(g.mul(weight, x), axes=(0,), keepdims=False))
    program, backend = compile_for(graph, load_device("host"))
    with open_session(write_artifact(program, backend, tmp_path / "least")) as session:
        session.train_step({"x": np.ones(3, np.float32)}, lr=0.1)
        session.save(tmp_path / "checkpoint")
        session.load(tmp_path / "checkpoint")
        assert np.isinf(session.get_param("least")).all()


def test_counts_that_a_checkpoint_cannot_hold_are_refused(point: Artifact, tmp_path: Path) -> None:
    with open_session(point) as session:
        session.steps = -1
        with pytest.raises(RuntimeFailure, match="steps and updates must be"):
            session.save(tmp_path / "checkpoint")
    assert not list(tmp_path.iterdir())


def test_an_older_processor_is_reported_what_it_lacks(point: Artifact) -> None:
    if detect_isa() not in ("avx2", "avx512") or shutil.which("qemu-x86_64") is None:
        pytest.skip("it needs AVX2 and qemu-x86_64 (apt install qemu-user)")
    command = ["qemu-x86_64", "-cpu", "Conroe", str(point.executable), "info"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "compiled for a processor with SSE4.2, which this one lacks" in done.stderr


def test_a_library_for_another_processor_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="with AVX2, which this one lacks; compile the model"):
        check_cpu(tmp_path / "libprogram.so", b"AVX2")


class TestSession(SessionTests):
    backend = "c"
