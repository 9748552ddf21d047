"""The cost of a scheme: exact memory of the compiled plan, and modelled cycles in order."""

import pytest

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.key import node_key
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.sparse import preset
from pockengine.compiler.sparse.lora import lora
from pockengine.devices import find_device, known_devices, load_device
from pockengine.errors import FinetuneError
from pockengine.finetune.contributions import Item
from pockengine.finetune.cost import CostModel
from pockengine.finetune.cost_kernels import KernelCosts
from pockengine.finetune.space import items_of, scheme_of
from pockengine.tests.backends.toy import DEVICE
from pockengine.tests.finetune.tiny import tiny_subject

GRAPH = tiny_subject().graph
RPI4 = load_device("rpi4")


@pytest.mark.parametrize("name", ["full", "bias-only", "head-only"])
def test_memory_matches_the_compiled_program(name: str) -> None:
    optimizer = Sgd(momentum=0.9)
    program = compile_program(GRAPH, Training(name, optimizer), target=CBackend(RPI4).target())
    states = [p.data.nbytes for p in program.params.values() if p.name.startswith("optimizer.")]
    cost = CostModel(GRAPH, RPI4, optimizer).cost(preset(name, GRAPH))

    assert cost.arena_bytes == program.entries["train"].plan.size
    assert cost.state_bytes == sum(states) > 0
    assert cost.memory_bytes == cost.extra_bytes + cost.state_bytes


def test_extra_memory_is_the_arena_minus_inference() -> None:
    costs = CostModel(GRAPH, RPI4)
    full = costs.cost(preset("full", GRAPH))

    assert full.extra_bytes == full.arena_bytes - costs.inference_bytes > 0


@pytest.mark.parametrize("device", known_devices())
def test_training_more_costs_more_everywhere(device: str) -> None:
    costs = CostModel(GRAPH, load_device(device))
    head, some, full = (
        costs.cost(scheme)
        for scheme in (
            preset("head-only", GRAPH),
            scheme_of(GRAPH, [Item("weight", "layers.1.weight", 0.5, "magnitude")]),
            preset("full", GRAPH),
        )
    )

    assert head.cycles < some.cycles < full.cycles
    assert head.work < some.work < full.work
    assert head.multiply_adds < some.multiply_adds < full.multiply_adds
    assert (head.trained, some.trained) == (650, 650 + 3 * 3 * 4 * 16 + 16)


def test_equal_schemes_compile_once() -> None:
    costs = CostModel(GRAPH, RPI4)
    items = [Item("weight", "layers.1.weight", 0.5, "leading")]

    assert costs.cost(scheme_of(GRAPH, items, "one")) == costs.cost(scheme_of(GRAPH, items, "two"))
    assert costs.compiled == 1


def test_adapters_cost_more_than_only_the_head() -> None:
    costs = CostModel(GRAPH, RPI4)
    head = costs.cost(preset("head-only", GRAPH))
    small, large = (costs.cost(lora(rank, 2, ["layers.1.weight"], ["head.*"])) for rank in (2, 4))

    assert (small.trained, large.trained) == (650 + 2 * (72 + 16), 650 + 4 * (72 + 16))
    assert head.multiply_adds < small.multiply_adds < large.multiply_adds


def test_channels_selected_by_data_cost_like_scattered_ones() -> None:
    costs = CostModel(GRAPH, RPI4)
    by_data, random = (
        costs.cost(scheme_of(GRAPH, [Item("weight", "layers.1.weight", 0.5, by)]))
        for by in ("fisher", "random")
    )

    assert by_data == random


def test_equal_keys_are_equal_kernels() -> None:
    """Scratch is looked up by key, so nodes with equal keys must need equal scratch."""
    known: dict[object, tuple[int, Node]] = {}
    for item in items_of(GRAPH):
        backend = CBackend(RPI4)
        scheme = scheme_of(GRAPH, [item])
        program = compile_program(GRAPH, Training(scheme), target=backend.target())
        for node in program.entries["train"].graph.nodes:
            scratch = backend.choose(node).scratch_bytes
            assert known.setdefault(node_key(node), (scratch, node))[0] == scratch
            assert KernelCosts(RPI4).of(node).scratch_bytes == scratch
    assert len(known) > 20


def test_graph_without_inference_is_refused() -> None:
    graph = tiny_subject().graph
    del graph.outputs["logits"]

    with pytest.raises(FinetuneError, match="no output but its loss"):
        CostModel(graph, RPI4)


def test_cost_needs_no_generated_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CBackend, "kernel", lambda *_: pytest.fail("a kernel was written"))

    assert CostModel(GRAPH, RPI4).cost(preset("full", GRAPH)).cycles > 0


def test_backend_without_a_processor_has_costs() -> None:
    toy = find_device(DEVICE)
    cost = CostModel(GRAPH, toy).cost(preset("full", GRAPH))

    assert cost.cycles == cost.work > 0
    assert cost.milliseconds(toy) is None
