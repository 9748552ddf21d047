"""Train any set of a weight's channels: equal to PyTorch with masked gradients; storage."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Graph, TensorType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.program import Program
from pockengine.compiler.sparse import ParamChoice, Scheme
from pockengine.compiler.sparse.scheme import FULL
from pockengine.compiler.target import FusionRules, Target
from pockengine.tests.compiler.small_nets import NetBuilder

AXES = {"a.weight": 2, "b.weight": 3, "c.weight": 2, "fc.weight": 0}
COUNTS = {"a.weight": 4, "b.weight": 8, "c.weight": 8, "fc.weight": 8}
BATCH, SIZE, CLASSES = 2, 6, 3
RATE, MOMENTUM = 0.05, 0.9


def net() -> Graph:
    """A dense, a depthwise and a pointwise convolution with a skip, and a linear layer."""
    builder = NetBuilder("sets")
    x = builder.g.input("x", TensorType(F32, (BATCH, SIZE, SIZE, 4)))
    target = builder.g.input("target", TensorType(I64, (BATCH,)))
    stem = builder.relu6(builder.conv(x, "a", 8, 3, stride=1))
    deep = builder.relu6(builder.conv(stem, "b", 8, 3, groups=8))
    return builder.head(builder.g.add(builder.conv(deep, "c", 8, 1), stem), CLASSES, target)


def torch_loss(
    weights: dict[str, torch.Tensor], x: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    a, b, c = (weights[f"{name}.weight"].permute(3, 2, 0, 1) for name in "abc")
    stem = functional.relu6(functional.conv2d(x.permute(0, 3, 1, 2), a, padding=1))
    deep = functional.relu6(functional.conv2d(stem, b, padding=1, groups=8))
    pooled = (functional.conv2d(deep, c) + stem).mean((2, 3))
    logits = pooled @ weights["fc.weight"] + weights["fc.bias"]
    return functional.cross_entropy(logits, target)


def batches(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    return [
        {
            "x": rng.standard_normal((BATCH, SIZE, SIZE, 4)).astype(np.float32),
            "target": rng.integers(0, CLASSES, BATCH),
        }
        for _ in range(count)
    ]


def masked_training(
    sets: dict[str, tuple[int, ...]], micro_batches: int, steps: int
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Train in PyTorch with zero gradients for the other channels; return losses and weights."""
    params = net().params
    weights = {name: torch.tensor(param.data) for name, param in params.items()}
    for name, chosen in sets.items():
        shape = [1] * weights[name].ndim
        shape[AXES[name]] = -1
        mask = torch.zeros(COUNTS[name])
        mask[list(chosen)] = 1
        weights[name].requires_grad_()
        weights[name].register_hook(mask.reshape(shape).mul)
    optimizer = torch.optim.SGD([weights[name] for name in sets], RATE, MOMENTUM)
    losses = []
    for index, batch in enumerate(batches(steps)):
        inputs = (torch.from_numpy(batch[name]) for name in ("x", "target"))
        loss = torch_loss(weights, *inputs)
        (loss / micro_batches).backward()
        losses.append(loss.item())
        if (index + 1) % micro_batches == 0:
            optimizer.step()
            optimizer.zero_grad()
    return losses, {name: tensor.detach().numpy() for name, tensor in weights.items()}


def compiled(sets: dict[str, tuple[int, ...]], **training: int) -> Program:
    rules = tuple((name, ParamChoice("channels", channels=chosen)) for name, chosen in sets.items())
    return compile_program(
        net(), Training(Scheme("sets", rules), Sgd(MOMENTUM), **training), check=True
    )


@st.composite
def drawn_sets(draw: st.DrawFn) -> dict[str, tuple[int, ...]]:
    """Draw some channels of some weights."""
    names = draw(st.sets(st.sampled_from(sorted(AXES)), min_size=1))
    return {
        name: tuple(sorted(draw(st.sets(st.integers(0, COUNTS[name] - 1), min_size=1))))
        for name in sorted(names)
    }


@settings(max_examples=8, deadline=None)
@given(sets=drawn_sets(), micro_batches=st.sampled_from([1, 2]))
def test_channel_sets_train_as_with_masked_gradients(
    sets: dict[str, tuple[int, ...]], micro_batches: int
) -> None:
    program = compiled(sets, micro_batches=micro_batches)
    state = {name: param.data.copy() for name, param in program.params.items()}
    losses, weights = masked_training(sets, micro_batches, steps=4)
    controls = {"lr": np.asarray(RATE, np.float32)}
    for index, (batch, expected) in enumerate(zip(batches(4), losses, strict=True)):
        inputs = batch if micro_batches > 1 else {**batch, **controls}
        found = run(program.entries["train"].graph, inputs, state)["loss"]
        assert float(found) == pytest.approx(expected, rel=2e-5)
        if micro_batches > 1 and (index + 1) % micro_batches == 0:
            run(program.entries["update"].graph, controls, state)
    for name in AXES:
        np.testing.assert_allclose(state[name], weights[name], rtol=1e-4, atol=2e-6, err_msg=name)


def test_memory_budget_preserves_results() -> None:
    sets = {"a.weight": (0, 3), "b.weight": (1, 4, 6), "c.weight": (0, 2, 7)}
    plain = compiled(sets)
    peak = plain.entries["train"].plan.lower_bound
    tight = compiled(sets, memory_budget=peak - 1000)
    assert tight.recomputation is not None
    assert tight.recomputation.dropped
    assert tight.entries["train"].plan.lower_bound <= peak - 1000
    results = []
    for program in (plain, tight):
        state = {name: param.data.copy() for name, param in program.params.items()}
        for batch in batches(2):
            controls = {"lr": np.asarray(RATE, np.float32)}
            run(program.entries["train"].graph, {**batch, **controls}, state)
        results.append(state)
    for name in AXES:
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_only_selected_channels_are_stored_and_computed() -> None:
    program = compiled({"c.weight": (0, 2, 7)})
    nodes = program.entries["train"].graph.nodes
    (part,) = [node for node in nodes if node.op == "pick"]
    whole = part.operands[0]
    assert part.result.shape == (BATCH, SIZE, SIZE, 3)
    after = nodes[nodes.index(part) + 1 :]
    assert not any(whole in node.operands for node in after if node.op != "conv2d")
    (dw,) = [node for node in nodes if node.op == "conv2d_dw"]
    assert dw.operands[0] is part.result
    assert dw.result.shape == (1, 1, 3, 8)
    assert program.params["optimizer.velocity.c.weight"].data.shape == (1, 1, 3, 8)


def test_only_whole_weight_updates_fuse_into_the_gradient_kernel() -> None:
    rules = (("c.weight", ParamChoice("channels", channels=(0, 2, 7))), ("fc.weight", FULL))
    fusion = FusionRules(update=frozenset({"matmul", "conv2d_dw"}))
    program = compile_program(
        net(), Training(Scheme("both", rules), Sgd(MOMENTUM)), target=Target(fusion), check=True
    )
    nodes = program.entries["train"].graph.nodes
    updates = [node for node in nodes if node.op == "sgd_update"]
    assert [node.attrs["index"] for node in updates] == [(0, 2, 7)]
    (fused,) = [node for node in nodes if node.op == "fusion" and node.attrs["writes"]]
    written = [fused.operands[place].name for place in fused.attrs["writes"]]
    assert written == ["fc.weight", "optimizer.velocity.fc.weight"]


def test_scattered_channels_need_no_more_memory_than_leading_ones() -> None:
    arenas = []
    for chosen in ((0, 1, 2), (0, 3, 7)):
        sets = {"b.weight": chosen, "c.weight": chosen}
        arenas.append(compiled(sets).entries["train"].plan.size)
    assert arenas[0] == arenas[1]
