"""Optimizers that use a whole weight or its rows: Muon and SparseAdam as in PyTorch."""

import numpy as np
import pytest
import torch

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import I64, Builder, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Adam, Groups, Lamb, Lars, Muon, Optimizer, SparseAdam
from pockengine.compiler.options import Training
from pockengine.errors import CompileError
from pockengine.tests.compiler.regression import (
    RATE,
    STEPS,
    assert_same,
    data,
    ours,
    rate,
    regression,
)
from pockengine.tests.compiler.regression_torch import set_rate, theirs


@pytest.mark.parametrize("optimizer", [Lars(), Lamb()], ids=["lars", "lamb"])
def test_zero_weights_train(optimizer: Optimizer) -> None:
    """The ratio is 1 if |p| = 0."""
    graph = regression()
    program = compile_program(graph, Training(optimizer=optimizer))
    params = {name: np.zeros_like(param.data) for name, param in program.params.items()}
    controls = {"lr": np.float32(RATE), "step": np.int32(1)}
    run(program.entries["train"].graph, {**data(0), **controls}, params)
    assert all(np.isfinite(array).all() for array in params.values())
    assert params["w"].all()
    assert params["b"].all()


@pytest.mark.parametrize("form", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_muon_equals_torch_in_f32(
    monkeypatch: pytest.MonkeyPatch, form: str, nesterov: bool
) -> None:
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    settings = {"nesterov": nesterov, "adjust_lr_fn": form, "weight_decay": 0.2, "momentum": 0.9}

    class Both:
        """Muon for the weight, and AdamW for the bias, which PyTorch's Muon refuses."""

        def __init__(self, params: list[torch.Tensor]) -> None:
            w, b = params
            self.parts = (torch.optim.Muon([w], RATE, **settings), torch.optim.AdamW([b], RATE))
            self.param_groups = [group for part in self.parts for group in part.param_groups]

        def step(self) -> None:
            for part in self.parts:
                part.step()

        def zero_grad(self) -> None:
            for part in self.parts:
                part.zero_grad()

    found = ours(Training(optimizer=Muon(**settings)))
    expected = theirs(Both)
    for name, array in expected.items():  # the iteration amplifies rounding
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4)


def test_muon_steps_are_orthogonal() -> None:
    """All singular values of the step are near 1, whichever dimension is longer."""
    for shape in ((4, 16), (16, 4)):
        g = Builder(Graph("matrix"))
        w = g.param("w", np.random.default_rng(0).standard_normal(shape).astype(np.float32))
        g.output("loss", g.reduce_sum(g.square(w), axes=(0, 1)))
        training = Training(optimizer=Muon(weight_decay=0.0, adjust_lr_fn="match_rms_adamw"))
        program = compile_program(g.graph, training)
        before = program.params["w"].data.copy()
        params = {name: param.data.copy() for name, param in program.params.items()}
        run(program.entries["train"].graph, {"lr": np.float32(1.0)}, params)
        values = np.linalg.svd((before - params["w"]) / (0.2 * 4), compute_uv=False)
        assert 0.6 < values.min() <= values.max() < 1.3


def embedding() -> Graph:
    g = Builder(Graph("embedding"))
    rng = np.random.default_rng(0)
    table = g.param("table", rng.standard_normal((9, 4)).astype(np.float32))
    ids = g.input("ids", TensorType(I64, (2, 3)))
    taken = g.reshape(g.take(table, ids, axis=0), shape=(6, 4))
    weight = g.constant(rng.standard_normal((6, 4)).astype(np.float32))
    g.output("loss", g.reduce_sum(g.square(g.sub(taken, weight)), axes=(0, 1)))
    return g.graph


def test_sparse_adam_equals_torch_and_skips_other_rows() -> None:
    graph = embedding()
    program = compile_program(graph, Training(optimizer=SparseAdam((0.8, 0.9))), check=True)
    params = {name: param.data.copy() for name, param in program.params.items()}
    weight = torch.from_numpy(next(iter(graph.constants.values())))
    table = torch.from_numpy(graph.params["table"].data.copy()).requires_grad_()
    optimizer = torch.optim.SparseAdam([table], RATE, (0.8, 0.9))
    for step in range(1, STEPS + 1):
        ids = np.random.default_rng(step).integers(0, 7, (2, 3))
        controls = {"lr": np.float32(rate(step - 1)), "step": np.int32(step)}
        run(program.entries["train"].graph, {"ids": ids, **controls}, params)
        taken = torch.nn.functional.embedding(torch.from_numpy(ids), table, sparse=True)
        (taken.reshape(6, 4) - weight).square().sum().backward()
        set_rate(optimizer, step - 1)
        optimizer.step()
        optimizer.zero_grad()
    assert_same(params, {"table": table.detach().numpy()})
    np.testing.assert_array_equal(params["table"][7:], graph.params["table"].data[7:])
    assert not params["optimizer.first.table"][7:].any()


def test_sparse_adam_is_adam_for_dense_gradients() -> None:
    found, expected = (ours(Training(optimizer=kind(eps=1e-12))) for kind in (SparseAdam, Adam))
    assert_same(found, {name: expected[name] for name in ("w", "b")})


def test_muon_leaves_vectors_to_the_other_optimizer() -> None:
    found = ours(Training(optimizer=Muon(others=Adam())))
    alone = ours(Training(optimizer=Groups(Adam(), (("w", Muon()),))))
    assert_same(found, alone)
    assert {n for n in found if n.startswith("optimizer.")} == {
        "optimizer.velocity.w",
        "optimizer.first.b",
        "optimizer.second.b",
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: Lars(momentum=1.0),
        lambda: Lamb((0.9, 1.0)),
        lambda: Muon(adjust_lr_fn="adam"),
        lambda: Muon(ns_steps=0),
        lambda: SparseAdam((1.0, 0.9)),
    ],
)
def test_impossible_settings_are_errors(make: object) -> None:
    assert callable(make)
    with pytest.raises(CompileError):
        make()
