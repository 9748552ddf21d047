"""Whole programs in generated C train as in the oracle; artifacts store and check themselves."""

import json
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import Artifact, load_artifact, write_artifact
from pockengine.backends.barriers import ByteSpan, Touched, needs_barrier
from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.build import build
from pockengine.backends.native.program import generate
from pockengine.backends.native.runtime_files import copy_runtime
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.target import Target
from pockengine.devices.schema import Device, load_device
from pockengine.errors import ArtifactError, BuildError, CompileError, RuntimeFailure
from pockengine.tests.backends.c.harness import device_of
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph, point_graph


def host(threads: int = 3) -> Device:
    device = load_device("host")
    return replace(device, processor=replace(device.cpu, cores=threads))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Artifact]:
    program, backend = compile_for(convolutional_graph(), host())
    folder = tmp_path_factory.mktemp("artifacts") / "small_cnn"
    return program, write_artifact(program, backend, folder)


@pytest.fixture(scope="module")
def point(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    program, backend = compile_for(point_graph(), host())
    return write_artifact(program, backend, tmp_path_factory.mktemp("artifacts") / "point")


def batch(rng: np.random.Generator) -> dict[str, np.ndarray]:
    x = rng.standard_normal((4, 12, 12, 3)).astype(np.float32)
    return {"x": x, "labels": rng.integers(0, 5, 4)}


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ten_training_steps_agree_with_the_oracle(
    compiled: tuple[Program, Artifact], threads: int
) -> None:
    program, artifact = compiled
    state = {name: param.data.copy() for name, param in program.params.items()}
    rng = np.random.default_rng(0)
    with open_session(artifact, threads) as session:
        for _ in range(10):
            inputs = batch(rng)
            expected = run(
                program.entries["train"].graph,
                {**inputs, "lr": np.asarray(0.05, np.float32)},
                state,
            )
            found = session.train_step(inputs, lr=0.05)
            np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
        for name, array in state.items():
            np.testing.assert_allclose(
                session.get_param(name), array, rtol=1e-3, atol=1e-5, err_msg=name
            )
        expected = run(program.entries["predict"].graph, {"x": inputs["x"]}, state)
        found = session.predict({"x": inputs["x"]})
        np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-3, atol=1e-4)


def test_equal_runs_give_equal_bits(compiled: tuple[Program, Artifact]) -> None:
    _, artifact = compiled
    runs = []
    for _ in range(2):
        rng = np.random.default_rng(1)
        with open_session(artifact, threads=2) as session:
            for _ in range(3):
                session.train_step(batch(rng), lr=0.1)
            runs.append(session.params())
    for name, array in runs[0].items():
        np.testing.assert_array_equal(array, runs[1][name], err_msg=name)


def test_what_is_frozen_costs_no_arena() -> None:
    sizes = {}
    for scheme in ("full", "bias-only"):
        training = Training(scheme=scheme)
        program, _ = compile_for(convolutional_graph(), device_of("avx2"), training)
        sizes[scheme] = program.entries["train"].plan.size
    assert sizes["bias-only"] < sizes["full"]


def test_generated_code_depends_on_the_program_alone() -> None:
    texts = [generate(*compile_for(convolutional_graph(), device_of("avx2"))) for _ in range(2)]
    assert texts[0] == texts[1]


def test_every_kernel_call_has_a_line_that_says_what_it_computes() -> None:
    text = generate(*compile_for(convolutional_graph(), device_of("avx2")))["program.c"]
    lines = [line.strip() for line in text.splitlines()]
    calls = [i for i, line in enumerate(lines) if re.match(r"(KERNEL|UPDATE)\(\d", line)]
    assert len(calls) > 40
    assert all(lines[index - 1].startswith("/* ") for index in calls)
    assert "sgd_update(depthwise.weight f32[3,3,1,8]" in text


def test_a_barrier_stands_where_memory_is_shared_and_nowhere_else() -> None:
    a, b, c = (ByteSpan("arena", start, start + 64) for start in (0, 64, 128))
    weight = ByteSpan("params", 0, 64)
    kernels = [
        Touched([a], [b]),
        Touched([b], [c]),  # reads what was written
        Touched([a], [weight]),  # an update: nothing in common
        Touched([c, weight], [b]),  # reads both
        Touched([weight], [ByteSpan("arena", 100, 200)]),  # overlaps what was read
        Touched([a], [a]),
    ]
    assert needs_barrier(kernels) == [False, True, False, True, True, False]


def test_a_checkpoint_brings_a_session_back(
    compiled: tuple[Program, Artifact], tmp_path: Path
) -> None:
    _, artifact = compiled
    inputs = batch(np.random.default_rng(2))
    with open_session(artifact) as session:
        session.train_step(inputs, lr=0.1)
        session.save(tmp_path / "checkpoint")
        expected = session.train_step(inputs, lr=0.1)["loss"]
    with open_session(artifact) as session:
        session.load(tmp_path / "checkpoint")
        assert session.train_step(inputs, lr=0.1)["loss"] == expected


def test_params_are_read_and_replaced_by_name(point: Artifact) -> None:
    with open_session(point) as session:
        session.set_param("point", np.ones(300, np.float32))
        assert (session.get_param("point") == 1).all()
        zeros = {"x": np.zeros(300, np.float32)}
        assert session.train_step(zeros, lr=0.0)["loss"] == 1
        assert session.evaluate(zeros)["loss"] == 1


def test_sessions_of_one_artifact_do_not_disturb_each_other(
    compiled: tuple[Program, Artifact],
) -> None:
    _, artifact = compiled
    inputs = batch(np.random.default_rng(3))

    def losses(_: int) -> list[float]:
        found = []
        with open_session(artifact) as session:
            for _ in range(20):
                session.load(artifact.weights)
                found.append(float(session.train_step(inputs, lr=0.1)["loss"]))
        return found

    with ThreadPoolExecutor(4) as pool:
        found = {loss for each in pool.map(losses, range(12)) for loss in each}
    assert len(found) == 1


def test_a_rebuilt_artifact_is_reloaded(tmp_path: Path) -> None:
    for size in (3, 5):
        program, backend = compile_for(point_graph(size), host())
        artifact = write_artifact(program, backend, tmp_path / "point")
        with open_session(artifact) as session:
            assert session.get_param("point").shape == (size,)


def test_micro_batches_collect_what_an_update_applies(tmp_path: Path) -> None:
    training = Training(optimizer=Adam(), micro_batches=2)
    program, backend = compile_for(point_graph(8), host(), training)
    state = {name: param.data.copy() for name, param in program.params.items()}
    rng = np.random.default_rng(0)
    with open_session(write_artifact(program, backend, tmp_path / "point")) as session:
        for step in range(1, 4):
            for _ in range(2):
                x = rng.standard_normal(8).astype(np.float32)
                run(program.entries["train"].graph, {"x": x}, state)
                session.train_step({"x": x}, lr=0.1)
            controls = {"lr": np.asarray(0.1, np.float32), "step": np.asarray(step, np.int32)}
            run(program.entries["update"].graph, controls, state)
            assert (session.steps, session.updates) == (2 * step, step)
        session.train_step({"x": x}, lr=0.1)
        run(program.entries["train"].graph, {"x": x}, state)
        for name, array in state.items():
            np.testing.assert_allclose(session.get_param(name), array, 1e-5, 1e-6, err_msg=name)


def test_peak_memory_is_the_programs_own(
    compiled: tuple[Program, Artifact], tmp_path: Path
) -> None:
    program, artifact = compiled
    rng = np.random.default_rng(0)
    for name, array in batch(rng).items():  # far more rows than fit below; zeros need no disk
        shape = (60_000, *array.shape[1:])
        np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", array.dtype, shape)
    ballast = np.ones(50_000_000)  # the parent's peak must not count
    command = [str(artifact.executable), "train", "--weights", str(artifact.weights), "--steps"]
    command += ["9", "--data", str(tmp_path), "--lr", "0.1", "--shuffle"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    last = json.loads(done.stdout.splitlines()[-1])
    data_bytes = sum(path.stat().st_size for path in tmp_path.glob("*.npy"))
    assert (last["rows"], data_bytes > 100_000_000) == (60_000, True)
    assert program.arena_bytes < last["peak_rss_bytes"] < 20_000_000 < ballast.nbytes


def test_wrong_inputs_are_named(point: Artifact) -> None:
    x = np.zeros(300, np.float32)
    with open_session(point) as session:
        for inputs, words in (
            ({}, r"input x \(f32\[300\]\) is missing"),
            ({"x": x[:299]}, r"x must be f32\[300\], not float32\[299\]"),
            ({"x": x.astype(np.float64)}, "not float64"),
            ({"x": x, "y": x}, r"no input \['y'\]; it reads x"),
        ):
            with pytest.raises(RuntimeFailure, match=words):
                session.predict(inputs)
        with pytest.raises(RuntimeFailure, match="no entry 'banana'"):
            session.run("banana", {})
        with pytest.raises(RuntimeFailure, match="no param 'banana'"):
            session.get_param("banana")
        with pytest.raises(RuntimeFailure, match="cannot open"):
            session.load(Path("absent"))
    with pytest.raises(RuntimeFailure, match="closed"):
        session.get_param("point")


def test_damaged_artifacts_are_refused_by_file(point: Artifact, tmp_path: Path) -> None:
    def damaged(name: str, text: str | None) -> Path:
        folder = tmp_path / f"copy_{len(list(tmp_path.iterdir()))}"
        shutil.copytree(point.folder, folder)
        if text is None:
            (folder / name).unlink()
        else:
            (folder / name).write_text(text)
        return folder

    manifest = json.loads((point.folder / "manifest.json").read_text())
    escaping = {**manifest, "files": {**manifest["files"], "../x": "0"}}
    for name, text, words in (
        ("code/program.c", "int main;", "program.c is damaged"),
        ("weights.safetensors", None, "lacks weights.safetensors"),
        ("manifest.json", None, "is no artifact"),
        ("manifest.json", "{", "cannot be read"),
        ("manifest.json", json.dumps({**manifest, "schema": 99}), "not of schema"),
        ("manifest.json", json.dumps({**manifest, "params": [{}]}), "malformed"),
        ("manifest.json", json.dumps(escaping), "outside of the artifact"),
    ):
        with pytest.raises(ArtifactError, match=words):
            load_artifact(damaged(name, text))


def test_an_artifact_never_replaces_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    program, backend = compile_for(point_graph(), device_of("avx2"))
    with pytest.raises(ArtifactError, match="exists and is not an unmodified artifact"):
        write_artifact(program, backend, tmp_path, build_code=False)
    assert (tmp_path / "thesis.txt").exists()


def test_a_compiler_error_is_shown(tmp_path: Path) -> None:
    copy_runtime(tmp_path / "runtime")
    (tmp_path / "program.c").write_text("int broken = banana;\n")
    with pytest.raises(BuildError, match=r"program.c does not build(.|\n)*banana"):
        build(tmp_path, host(), tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"cpu": "cortex_a5x"}, "unknown CPU: 'cortex_a5x'"),
        ({"target": "aarch64-mus"}, "'aarch64-"),
    ],
)
def test_an_unknown_cpu_or_target_is_of_the_device_file(
    change: dict[str, str], fact: str, tmp_path: Path
) -> None:
    """zig prints 100 lines of CPUs before its error."""
    copy_runtime(tmp_path / "runtime")
    (tmp_path / "program.c").write_text("int sound;\n")
    board = load_device("rpi4")
    wrong = replace(board, compiler=replace(board.toolchain, **change))
    with pytest.raises(BuildError, match=rf"{fact}.*\n`target` and `cpu` of \[toolchain\] .*list"):
        build(tmp_path, wrong, tmp_path / "out")


def test_an_op_without_a_kernel_is_named() -> None:
    g = Builder(Graph("case"))
    shapes = [(3, 4), (4,), (4,)]
    inputs = [g.input(f"x{i}", TensorType(F32, shape)) for i, shape in enumerate(shapes)]
    node = g.emit("batch_norm", *inputs, eps=1e-5)
    backend = CBackend(device_of("avx2"))
    assert not backend.supports(node)
    with pytest.raises(CompileError, match="no kernel for batch_norm"):
        backend.kernel(node)


def test_a_plan_for_another_target_is_refused() -> None:
    """The graph was planned for a target whose kernels need no scratch."""
    backend = CBackend(load_device("rpi4"))
    program = compile_program(convolutional_graph(), target=Target(backend.target().fusion))

    with pytest.raises(CompileError, match="bytes of scratch, and 0 were planned"):
        generate(program, backend)
