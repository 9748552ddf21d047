"""A pipeline printed, parsed and run on the model's text gives the compiled graph."""

from collections.abc import Callable
from functools import partial

import pytest

from pockengine.compiler import compile as module
from pockengine.compiler.compile import compile_program, passes_of
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.graph import Space
from pockengine.compiler.ir.text import parse_graph, print_graph
from pockengine.compiler.ops import all_ops
from pockengine.compiler.optim import (
    Adam,
    AdamW,
    Groups,
    Lion,
    LoraPlus,
    Maximize,
    Muon,
    Scaled,
    Sgd,
)
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.passes.base import run_passes
from pockengine.compiler.passes.memory.tile_attention import TileAttention
from pockengine.compiler.passes.pass_text import parse_passes, print_passes
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.storage import Storage
from pockengine.compiler.target import FusionRules, MemorySpace, Target
from pockengine.tests.compiler.small_nets import attention_net, batches, residual_net
from pockengine.tests.compiler.transformers import bert_net

RULES_OF_ALL = FusionRules(
    frozenset({"matmul", "conv2d", "conv2d_dx"}),
    {"reduce_sum": (0,), "reduce_mean": (0,)},
    frozenset({"matmul", "conv2d_dw"}),
)
FLASH = MemorySpace("flash", None, frozenset({Space.CONSTANT}))
RAM = MemorySpace("ram", None, frozenset({Space.MUTABLE}))
LACKING = {"hardtanh", "layer_norm", "layer_norm_dx", "reduce_mean", "softmax", "square"}
TARGETS = {
    "all": Target(RULES_OF_ALL, name="all", rate_first=True, attention=64),
    "few": Target(name="few", ops=frozenset(op.name for op in all_ops()) - LACKING),
    "board": Target(RULES_OF_ALL, name="board", spaces=(FLASH, RAM)),
}
SPARSE = Scheme(
    "sparse",
    (
        ("*.bias", FULL),
        ("a.0.weight", ParamChoice("range", channels=(1, 3))),
        ("c.0.weight", ParamChoice("channels", channels=(0, 3, 5))),
        ("fc.weight", FULL),
    ),
)
GROUPS = Groups(LoraPlus(AdamW()), (("*.bias", Scaled(Maximize(Lion()), 0.5)), ("fc.*", Muon())))
BERT, ROWS = partial(bert_net, 1, 64), partial(attention_net, 128)
SMALL = Storage(activations="bf16", states="8bit", trained="bf16")

CASES: dict[str, tuple[Callable[[], Graph], Training]] = {
    "full": (residual_net, Training("full", Sgd(momentum=0.9))),
    "channels": (residual_net, Training(SPARSE, Adam())),
    "groups": (residual_net, Training("full", GROUPS, Clip(value=0.5))),
    "micro-batches": (residual_net, Training("full", Adam(), Clip(norm=1.0), micro_batches=4)),
    "integers": (
        lambda: quantized(residual_net(), batches(2))[0],
        Training("full", Sgd(), integers=Integers(gradients="int8")),
    ),
    "transformer": (BERT, Training("full", AdamW())),
    "adapters": (BERT, Training("lora-2", AdamW(), storage=Storage(weights="int8"))),
    "stored": (BERT, Training("full", Adam(), storage=SMALL)),
    "attention": (ROWS, Training("full", Sgd())),
    "budget": (partial(residual_net, 4, 16), Training("full", Sgd(), memory_budget=160_000)),
}


def compiled(forward: Graph, training: Training, target: Target) -> dict[str, str]:
    """Return the text of each entry after its last pass."""
    left: dict[str, str] = {}

    def observe(name: str, graph: Graph) -> None:
        left[name.partition(".")[0]] = print_graph(graph)

    compile_program(forward, training, target=target, observe=observe)
    return left


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_printed_passes_give_the_compiled_graph(name: str, target: str) -> None:
    net, training = CASES[name]
    forward = net()
    expected = compiled(forward, training, TARGETS[target])
    text, params = print_graph(forward), {n: p.data for n, p in forward.params.items()}
    for entry, passes in passes_of(forward, training, target=TARGETS[target]).items():
        again = parse_passes(print_passes(passes), TARGETS.__getitem__)
        assert again == passes
        graph = parse_graph(text, params)
        run_passes(again, graph)
        assert print_graph(graph) == expected[entry]
    assert ("recomputation {dropped=('" in expected["train"]) == (name == "budget")


def test_printed_passes_name_the_used_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FINER", (4,))  # as if larger blocks did not fit
    training = Training("full", Sgd(), memory_budget=250_000)
    passes = passes_of(ROWS(), training, target=TARGETS["few"])
    assert [each for each in passes["train"] if isinstance(each, TileAttention)] == [
        TileAttention(62_500)
    ]
