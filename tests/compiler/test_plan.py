"""The arena: live values never overlap, and little is wasted."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.compiler.memory.lifetime import Buffer, lifetimes
from pockengine.compiler.memory.plan import lower_bound, plan_memory
from pockengine.compiler.memory.timeline import live_bytes
from pockengine.compiler.optim import AdamW, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.kernels.fuse import Fuse
from pockengine.compiler.program import Allocation, Entry
from pockengine.compiler.target import ALIGNMENT, FusionRules, InPlace, Target
from pockengine.tests.compiler.small_nets import residual_net

ANY = Target()


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Random graphs of matrix products, sums, reshapes and reductions over earlier values."""
    g = Builder(Graph("random"))
    values = [g.input("x", TensorType(F32, (4, 4)))]
    for _ in range(draw(st.integers(1, 25))):
        a, b = (draw(st.sampled_from(values)) for _ in range(2))
        op = draw(st.sampled_from(["matmul", "add", "relu", "reshape", "sum"]))
        if op == "reshape":
            values.append(g.reshape(g.reshape(a, shape=(16,)), shape=(4, 4)))
        elif op == "sum":
            values.append(g.add(g.reduce_sum(a, axes=(0,)), b))
        else:
            values.append(g.emit(op, *((a,) if op == "relu" else (a, b))).result)
    g.output("y", draw(st.sampled_from(values)))
    return g.graph


def scratch_of(graph: Graph) -> dict[object, int]:
    return {node: 100 for node in graph.nodes if node.op == "matmul"}


@settings(max_examples=200, deadline=None)
@given(chains())
def test_buffers_that_live_together_do_not_overlap(graph: Graph) -> None:
    scratch = scratch_of(graph)
    plan = plan_memory(graph, lambda node: scratch.get(node, 0))
    alive = lifetimes(graph, lambda node: scratch.get(node, 0))
    places = {
        buffer: plan.scratch[buffer.scratch_of]
        if buffer.scratch_of
        else plan.values[buffer.values[0]]
        for buffer in alive.buffers
    }
    for one, two in itertools.combinations(places, 2):
        first, second = sorted((places[one], places[two]), key=lambda place: place.offset)
        if one.overlaps(two):
            assert first.offset + first.size <= second.offset
    assert all(place.offset % ALIGNMENT == 0 for place in places.values())
    assert lower_bound(alive.buffers) == plan.lower_bound <= plan.size
    live = live_bytes(Entry("train", graph, plan))
    assert max(live) == plan.lower_bound
    assert live == [
        sum(buffer.room for buffer in places if buffer.first <= at <= buffer.last)
        for at in range(len(graph.nodes))
    ]


@settings(max_examples=100, deadline=None)
@given(chains(), st.integers(0, 99))
def test_execution_in_one_arena_equals_the_oracle(graph: Graph, seed: int) -> None:
    """Run the graph with every value at its offset, to find stale or overwritten data."""
    from pockengine.compiler.ir.evaluate import run
    from pockengine.compiler.ops.registry import lookup

    plan = plan_memory(graph, lambda node: 0)
    arena = np.full(plan.size, 0xFF, np.uint8)

    def view(value: object) -> np.ndarray:
        place = plan.values[value]  # type: ignore[index]
        raw = arena[place.offset : place.offset + place.size]
        return raw.view(np.float32).reshape(value.shape)  # type: ignore[attr-defined]

    x = np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32) / 4
    view(graph.inputs[0])[...] = x
    for node in graph.nodes:
        results = lookup(node.op).eval(tuple(view(v).copy() for v in node.operands), node.attrs)
        for value, data in zip(node.results, results, strict=True):
            view(value)[...] = data
    expected = run(graph, {"x": x})["y"]
    np.testing.assert_array_equal(view(graph.outputs["y"]), expected)


def test_elementwise_results_reuse_a_dying_operand() -> None:
    g = Builder(Graph("chain"))
    x = g.input("x", TensorType(F32, (64, 64)))
    g.output("y", g.relu(g.neg(g.exp(x))))
    plan = plan_memory(g.graph, lambda node: 0)
    assert plan.size == 64 * 64 * 4


def test_reshape_of_a_param_is_an_alias() -> None:
    g = Builder(Graph("alias"))
    w = g.param("w", np.zeros((2, 8), np.float32))
    flat = g.reshape(w, shape=(16,))
    g.output("y", g.neg(flat))
    plan = plan_memory(g.graph, lambda node: 0)
    assert plan.aliases == {flat: w}
    assert flat not in plan.values


def test_training_step_is_packed_within_five_percent_of_the_bound() -> None:
    plan = compile_program(residual_net(batch=8, size=16)).entries["train"].plan
    assert plan.size <= 1.05 * plan.lower_bound


def test_adam_updates_follow_their_gradients() -> None:
    """If they waited for their shared corrections, all gradients would be alive at the end."""
    plain, adam = (
        compile_program(residual_net(batch=2, size=12), Training(optimizer=optimizer), target=ANY)
        for optimizer in (Sgd(), AdamW())
    )
    shared = 4 * ALIGNMENT  # the step, two corrections, and the values in between
    assert adam.entries["train"].plan.size <= plain.entries["train"].plan.size + shared


def test_lower_bound_is_the_largest_live_set() -> None:
    buffers = [Buffer(64, 0, 2), Buffer(128, 1, 1), Buffer(64, 2, 3)]
    assert lower_bound(buffers) == 192


def test_loss_gradient_reuses_the_memory_of_the_logits() -> None:
    g = Builder(Graph("loss"))
    x = g.input("x", TensorType(F32, (4, 3)))
    labels, dy = g.input("labels", TensorType(I64, (4,))), g.input("dy", TensorType(F32, ()))
    logits = g.square(x)
    gradient = g.cross_entropy_dx(logits, labels, dy)
    g.output("again", g.relu(g.matmul(gradient, x, transpose_b=True)))
    in_place = InPlace({"cross_entropy_dx": (0,)})
    plan = plan_memory(g.graph, lambda node: 0, in_place=in_place)
    assert plan.values[gradient] == plan.values[logits]
    plan = plan_memory(g.graph, lambda node: 0)
    assert plan.values[gradient] != plan.values[logits]
    g.output("kept", logits)
    plan = plan_memory(g.graph, lambda node: 0, in_place=in_place)
    assert plan.values[gradient] != plan.values[logits]


def test_a_product_overwrites_an_operand_of_its_epilogue() -> None:
    in_place = InPlace(epilogues=frozenset({"matmul"}))

    def plan(with_view: bool, rules: InPlace) -> tuple[Allocation, Allocation]:
        g = Builder(Graph("fused"))
        x, w = g.input("x", TensorType(F32, (16, 16))), g.input("w", TensorType(F32, (16, 16)))
        added = g.exp(x)
        view = g.reshape(g.reshape(added, shape=(256,)), shape=(16, 16))
        read = view if with_view else g.neg(x)
        g.output("y", g.add(g.matmul(read, w), added))
        Fuse(Target(FusionRules(epilogue=frozenset({"matmul"})))).run(g.graph)
        (fused,) = (node for node in g.graph.nodes if node.op == "fusion")
        values = plan_memory(g.graph, lambda node: 0, in_place=rules).values
        return values[fused.result], values[added]

    result, added = plan(with_view=False, rules=in_place)
    assert result == added
    result, added = plan(with_view=False, rules=InPlace())
    assert result != added
    # The product's operand is a view of what is added: it is read again after parts are stored.
    result, added = plan(with_view=True, rules=in_place)
    assert result != added
