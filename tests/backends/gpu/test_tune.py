"""Tuning of a GPU's products: plans, times of launches, and use of the table."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import pockengine
from pockengine.backends.cache import own_cache
from pockengine.backends.gpu.opencl import KERNELS, OpenClBackend
from pockengine.backends.gpu.tune import UNIT, GpuTuner
from pockengine.backends.native.profile import Timed, example_inputs, profile_step
from pockengine.backends.native.tuning import Forced, TuningProblem, tune
from pockengine.backends.placement import kernel_nodes
from pockengine.backends.tuned import TunedPlan, gpu_name, new_table, write_table
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I32, Builder, Graph, TensorType
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.devices import load_device
from pockengine.errors import CompileError
from pockengine.tests.backends.gpu.watched_opencl import has_opencl
from pockengine.tests.compiler.small_nets import residual_net

DEVICE = load_device("host-opencl").on("opencl")
OPENCL = {"device": "host-opencl", "backend": "opencl"}
LONG = "matmul 8x700 700x24 f32"
"""A product whose sum can be shared by groups."""


def perceptron() -> Graph:
    rng = np.random.default_rng(0)
    g = Builder(Graph("perceptron"))
    x, target = g.input("x", TensorType(F32, (8, 700))), g.input("target", TensorType(I32, (8,)))
    w = [
        g.param(f"{name}.weight", rng.normal(0, 0.05, shape).astype(np.float32))
        for name, shape in (("a", (700, 24)), ("b", (24, 5)))
    ]
    g.output("loss", g.cross_entropy(g.matmul(g.relu(g.matmul(x, w[0])), w[1]), target))
    return g.graph


def compiled(backend: Timed) -> Program:
    return compile_program(perceptron(), Training(), target=backend.target())


def problems(plans: int = 4) -> list[TuningProblem]:
    tuner = GpuTuner(DEVICE)
    return tuner.problems(kernel_nodes(compiled(tuner.backend()).entries["train"]), plans)


def forced(plans: Mapping[str, str], folder: Path) -> Path:
    """Write a table in which these plans are the fastest."""
    rows = {key: TunedPlan(label, 1, label, 1, "") for key, label in plans.items()}
    table = new_table(DEVICE, UNIT, gpu_name(DEVICE)).with_rows(rows)
    write_table(table, folder / "tuned.json")
    return folder / "tuned.json"


class FastLast:
    """A GPU on which a launch takes a microsecond, and half of that with the last plan."""

    def __init__(self, plans: int) -> None:
        self.plans, self.runs = plans, 0

    def __call__(self, runner: Path, files: Mapping[str, Path], arguments: Sequence[str]) -> str:
        self.runs += 1
        ns = 500 if self.runs == self.plans else 1000
        line = {"samples": 10, "least_ns": ns, "median_ns": ns, "most_ns": ns}
        return "\n".join(json.dumps({"kernel": number, **line}) for number in range(40))


def test_problems_are_products_by_op_and_size_with_the_default_first() -> None:
    found = {problem.key: problem for problem in problems()}
    assert set(found) == {
        *(LONG, "matmul 8x24 24x5 f32", "matmul 24x8t 8x5 f32", "matmul 8x5 5x24t f32"),
        "matmul 700x8t 8x24 f32",
    }
    assert found[LONG].calls == 1
    labels = list(found[LONG].kernels)
    assert len(labels) == 4
    assert any(label.endswith(" in 2 parts") for label in labels)
    default = OpenClBackend(DEVICE).kernels(compiled(OpenClBackend(DEVICE)))[0]
    assert next(iter(found[LONG].kernels.values())).symbol == default.symbol


def test_convolutions_of_other_windows_are_other_problems() -> None:
    tuner = GpuTuner(DEVICE)
    program = compile_program(residual_net(), Training(), target=tuner.backend().target())
    keys = [each.key for each in tuner.problems(kernel_nodes(program.entries["train"]), 2)]
    assert any(key.startswith("conv2d 3x3 by 1x1, ") for key in keys)
    assert any(key.startswith("conv2d_dw 3x3 by ") for key in keys)


def test_launches_of_a_kernel_are_added_up() -> None:
    label = next(each for each in problems()[0].kernels if each.endswith("parts"))
    backend = OpenClBackend(DEVICE, Forced({LONG: label}))
    program = compiled(backend)
    inputs = example_inputs(program.entries["train"].graph)
    times = profile_step(program, backend, inputs, run=FastLast(0))
    assert [time.median_ns for time in times[:2]] == [2000, 1000]
    assert sum(time.median_ns for time in times) <= 40_000


def test_the_plan_that_takes_least_wins_and_is_emitted(tmp_path: Path) -> None:
    tried = problems()
    meter = GpuTuner(DEVICE).meter(compiled, run=FastLast(plans=4))
    table = tune(tried, meter, new_table(DEVICE, UNIT, gpu_name(DEVICE)), lambda _: None)
    labels = list(tried[0].kernels)
    row = table.rows[LONG]
    launches = {label: 1 + label.endswith("parts") for label in labels}
    assert (row.plan, row.value) == (labels[3], 500 * launches[labels[3]])
    assert (row.default, row.default_value) == (labels[0], 1000 * launches[labels[0]])
    write_table(table, tmp_path / "tuned.json")
    artifact = pockengine.compile(perceptron(), None, tuned=tmp_path / "tuned.json", **OPENCL)
    text = (artifact.artifact.folder / "code" / KERNELS).read_text(encoding="utf-8")
    assert tried[0].kernels[labels[3]].symbol in text
    assert tried[0].kernels[labels[0]].symbol not in text


def test_opencl_has_no_products_of_bf16() -> None:
    with pytest.raises(CompileError, match="backend opencl has no option bf16"):
        GpuTuner(DEVICE, bf16=True)


def test_tables_are_of_one_gpu(tmp_path: Path) -> None:
    path = forced({}, tmp_path)
    with pytest.raises(CompileError, match=r"are of host-opencl \(any by OpenCL, opencl\), not of"):
        pockengine.compile(perceptron(), None, tuned=path, device="adreno-740", backend="opencl")
    with pytest.raises(CompileError, match="not of host"):
        pockengine.compile(perceptron(), None, tuned=path)


class TestByOpenCl:
    """Tuning with this machine's OpenCL, which bazelw installs: PoCL on a CPU."""

    @pytest.fixture(autouse=True)
    def kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("POCL_CACHE_DIR", str(own_cache() / "pocl"))
        if not has_opencl():
            pytest.skip("this machine has no OpenCL")

    def test_every_kernel_of_the_step_is_timed(self) -> None:
        backend = OpenClBackend(DEVICE)
        program = compiled(backend)
        inputs = example_inputs(program.entries["train"].graph)
        times = profile_step(program, backend, inputs, steps=3)
        assert len(times) == len(kernel_nodes(program.entries["train"]))
        assert all(0 < time.least_ns <= time.median_ns <= time.most_ns for time in times)
        assert all(time.samples == 3 for time in times)

    def test_plans_are_measured_and_train_alike(self, tmp_path: Path) -> None:
        tried = problems(plans=2)
        tuner = GpuTuner(DEVICE)
        table = new_table(DEVICE, UNIT, gpu_name(DEVICE))
        table = tune(tried, tuner.meter(compiled), table, lambda _: None)
        assert set(table.rows) == {problem.key for problem in tried}
        assert all(0 < row.value <= row.default_value for row in table.rows.values())
        last = {problem.key: list(problem.kernels)[-1] for problem in tried}
        batch = example_inputs(compiled(tuner.backend()).entries["train"].graph)
        losses = []
        for options in ({"tuned": forced(last, tmp_path)}, {}):
            made = pockengine.compile(perceptron(), None, **OPENCL, **options)
            with made.session() as session:
                losses.append([session.train_step(batch, 0.1)["loss"] for _ in range(4)])
        np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
