"""Reference pages of what is listed in registries: ops, schemes, optimizers, losses, metrics."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pockengine.backends.rate_schedule import RateSchedule
from pockengine.cli.rows import METRICS
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.contents import Filled
from pockengine.compiler.ir.graph import ParamKind
from pockengine.compiler.ir.types import f32
from pockengine.compiler.ops.registry import REQUIRED, OpDef, all_ops
from pockengine.compiler.optim import NAMED, STATE_PREFIX, Update
from pockengine.compiler.sparse.choice import FROZEN, FULL, ParamChoice, quote, write_choice
from pockengine.compiler.sparse.choice import SIMPLE as WORDS
from pockengine.compiler.sparse.families import known_families
from pockengine.compiler.sparse.presets import PRESETS
from pockengine.docs.site.tables import table
from pockengine.frontends.losses import LOSSES

TRAITS = "elementwise", "view", "copies", "rows", "product", "pointwise"
"""Flags of an op that readers of a dumped graph need."""
WEIGHT = (6, 4)
"""Shape of the weight by which states are counted; its sizes are distinct."""

SCHEMES = """# Scheme files

A scheme selects what trains: `scheme="NAME"` or `--scheme NAME`, a preset below or a TOML file.
[Choose what trains](../howto/scheme.md) is the lesson. This page is generated from the code.

```toml
default = "frozen"

[params] # patterns as in a shell; the last match wins
"*.bias" = "full"
"features.1[4-7].conv.0.0.weight" = 0.25
"classifier.1.weight" = { lora = 8, alpha = 16 }
```

A file has two fields: `default`, the choice of a parameter that no pattern matches (`"frozen"` if
it is left out), and the table `[params]`, which gives patterns of names their choices. A pattern
that matches no parameter is an error.
"""
CHOICES = (
    (FROZEN, "nothing of the parameter"),
    (FULL, "all of it"),
    (ParamChoice("share", share=0.25), "the first quarter of its channels"),
    (ParamChoice("share", share=0.25, by="magnitude"), "the quarter with the largest 2-norms"),
    (ParamChoice("share", share=0.25, by="random", seed=3), "a quarter drawn by this seed"),
    (ParamChoice("range", channels=(0, 32)), "channels 0 to 31"),
    (ParamChoice("channels", channels=(1, 5, 7)), "these channels"),
    (ParamChoice("lora", rank=8, alpha=16.0), "an adapter of rank 8, scaled by alpha / rank"),
)
"""One choice of each form that a scheme file takes, and what it trains."""
TRAINING = """# Optimizers, schedules, losses, metrics

What can be named in Python and on the command line. This page is generated from the registries;
[Optimizers and schedules](../optimizers.md) explains storage, groups and those of the frameworks.
"""
OPS = """# Ops of the IR

What a graph consists of between frontends and backends, as `compile --dump-ir` prints it. An op
with a suffix `_dx`, `_dw` or `_update` appears in training graphs only. Attributes without a
default are required; `...` marks an operand that repeats, `?` one that may be absent. The column
of gradients has the operands with a gradient rule, or "formula" where the op is differentiated as
other ops. A model whose training needs another gradient is refused. This page is generated from
`compiler/ops/`.
"""


def ops_page() -> str:
    """Return the page of the IR's ops."""
    rows = [
        (f"`{op.name}`", _operands(op), _attributes(op), _gradients(op), _traits(op))
        for op in all_ops()
    ]
    return f"{OPS}\n{table(('op', 'operands', 'attributes', 'gradients', 'traits'), rows)}"


def schemes_page() -> str:
    """Return the page of scheme files, presets and families."""
    choices = [(f"`{value_text(choice)}`", words) for choice, words in CHOICES]
    known = [
        (f"`{one.name}`", f"`{one.block}`", *map(_codes, (one.weights, one.biases, one.head)))
        for one in known_families()
    ]
    return "\n".join(
        [
            SCHEMES,
            "## Choices\n",
            table(("value", "trains"), choices),
            "## Presets\n",
            table(("preset", "trains"), [(f"`{name}`", text) for name, text in PRESETS.items()]),
            "The head is that of a known family, else the block that the forward pass reads last."
            "\n",
            "## Families\n",
            "`sparse` needs the names of a known family; `#` is a number, and any prefix may "
            "precede a block.\n",
            table(("family", "block", "weights", "biases", "head"), known),
        ]
    )


def value_text(choice: ParamChoice) -> str:
    """Return a choice as in a scheme file."""
    text = write_choice(choice)
    return quote(text) if choice.kind in WORDS else text


def training_page() -> str:
    """Return the page of optimizers, schedules, losses and metrics."""
    parts = [TRAINING, "## Optimizers\n"]
    for name, kind in NAMED.items():
        parts += [f"### {name}\n", f"{inspect.cleandoc(kind.__doc__ or '')}\n", *_settings(kind)]
    schedule = inspect.cleandoc(RateSchedule.__doc__ or "")
    losses = [(f"`{name}`", text) for name, text in LOSSES.items()]
    metrics = [(f"`{name}`", _first(one)) for name, one in METRICS.items()]
    return "\n".join(
        [
            *parts,
            "## Schedules\n",
            f"`RateSchedule(kind, rate, steps, ...)`, or `--schedule KIND`.\n\n{schedule}\n",
            "## Losses\n",
            table(("loss", "takes"), losses),
            "A loss may also be a function of the framework, or the model's own result.\n",
            "## Metrics\n",
            table(("metric", "value"), metrics),
            "Any function of prediction and target is a metric too: `--metric MODULE:FUNCTION`.\n",
        ]
    )


def _operands(op: OpDef) -> str:
    first = len(op.operands) - op.optional
    names = [f"{name}?" if place >= first else name for place, name in enumerate(op.operands)]
    return ", ".join(names) + (" ..." if op.variadic else "")


def _attributes(op: OpDef) -> str:
    return ", ".join(
        name if default is REQUIRED else f"{name} = {default}" for name, default in op.attrs.items()
    )


def _gradients(op: OpDef) -> str:
    if op.variadic_vjp is not None:
        return "each"
    return ", ".join(op.vjp) or ("formula" if op.formula is not None else "")


def _traits(op: OpDef) -> str:
    found = [name for name in TRAITS if getattr(op, name)]
    return ", ".join([*found, *(["writes in place"] if op.writes else [])])


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _first(function: Any) -> str:
    first = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.removeprefix("Return ").split())


def _settings(kind: type) -> list[str]:
    """Return the lines of an optimizer's settings and states, both by their defaults."""
    settings = inspect.signature(kind).parameters.values()
    lines = [f"- `{setting}`" for setting in settings]
    states = [f"`{name}` {_size(shape)}" for name, shape in states_of(kind()).items()]
    return [*lines, f"- States of a weight [n, m]: {', '.join(states) or 'none'}\n"]


def _size(shape: Sequence[int]) -> str:
    names = {WEIGHT[0]: "n", WEIGHT[1]: "m"}
    return f"[{', '.join(names.get(size, str(size)) for size in shape)}]"


def states_of(optimizer: Any) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of an optimizer's states for a weight, by their names."""
    graph = Graph("states")
    g = Builder(graph)
    weight = f32(*WEIGHT)
    param = g.param("w", Filled(weight, 0.0))
    optimizer.update(Update(g, graph.params["w"], g.input("grad", weight)))
    return {
        name.removeprefix(STATE_PREFIX).removesuffix(".w"): one.value.shape
        for name, one in graph.params.items()
        if one.kind is ParamKind.OPTIMIZER and param is not one.value
    }
