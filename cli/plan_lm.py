"""`pockengine plan-lm MODEL`: the memory of a decoder's training, from shapes alone."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.cli.option_fields import compile_options, field_option, storage_forms
from pockengine.cli.options import (
    console,
    json_option,
    print_json,
)
from pockengine.compiler.storage import Storage
from pockengine.devices import find_device
from pockengine.errors import CompileError
from pockengine.finetune.lm.plan import LmMemory, Shape, Unplanned, plans
from pockengine.models.decoders import SIZES, check_length, shapes_of
from pockengine.options import CompileOptions

SCHEMES = ("full", "lora", "sparse")


@click.command(
    "plan-lm",
    help=f"""\
Plan the training of MODEL for each scheme and each form of frozen weights.

MODEL is {", ".join(SIZES)}, or a folder with config.json; no weights are read, and nothing is
built. The compiler plans every byte: what is printed is what the program's memories have.
""",
)
@click.argument("model")
@click.option(
    "--batch", default=1, show_default=True, type=click.IntRange(1), help="Rows per step."
)
@click.option("--max-length", "length", default=512, show_default=True, type=click.IntRange(2))
@click.option("--scheme", "schemes", multiple=True, default=SCHEMES, show_default=True)
@storage_forms("weights", "f32", "int4")
@field_option("activations", kind=Storage)
@field_option("states", kind=Storage)
@field_option("trained", kind=Storage)
@compile_options(
    *("device", "backend", "optimizer", "micro_batches", "memory_budget", "bf16", "tuned"),
    optimizer="adamw",
)
@json_option
def plan_lm(
    model: str,
    batch: int,
    length: int,
    schemes: Sequence[str],
    weights: Sequence[str],
    activations: str,
    states: str,
    trained: str,
    options: CompileOptions,
    as_json: bool,
) -> None:
    """Plan each scheme with each storage format of the frozen weights."""
    shape = Shape(batch, length)
    ways = [
        replace(options, scheme=scheme, storage=Storage(form, activations, states, trained))
        for scheme in schemes
        for form in (weights if scheme != "full" else ("f32",))
    ]
    device = find_device(options.device).on(options.backend)
    module = shapes_of(model)
    check_length(model, module, length)
    found = list(plans(module, shape, ways, device))
    failed = _failed(found)
    optimizer = str(options.optimizer)
    if as_json:
        facts: dict[str, Any] = {
            "model": model,
            "device": str(options.device),
            "backend": device.backend,
        }
        facts |= {**asdict(shape), "micro_batches": options.micro_batches, "optimizer": optimizer}
        print_json({**facts, "plans": [_row(plan) for plan in found]})
        return
    kind = optimizer.partition("(")[0]
    title = f"{model}, {batch} x {length} tokens, {kind}, {device.backend} on {device.name}"
    console().print(_table(title, found))
    for plan in failed:
        console().print(f"{plan.scheme}, {plan.frozen_weights}: {plan.why}", markup=False)


def _failed(found: Sequence[LmMemory | Unplanned]) -> list[Unplanned]:
    """Return the plans that failed; CompileError if all did."""
    failed = [plan for plan in found if isinstance(plan, Unplanned)]
    if len(failed) == len(found):
        raise CompileError(failed[0].why)
    return failed


def _row(plan: LmMemory | Unplanned) -> dict[str, Any]:
    total = {} if isinstance(plan, Unplanned) else {"total_bytes": plan.total_bytes}
    return {**asdict(plan), **total}


def _table(title: str, found: Sequence[LmMemory | Unplanned]) -> Table:
    largest = max(plan.total_bytes for plan in found if isinstance(plan, LmMemory))
    unit, power = ("GB", 9) if largest >= 1e9 else ("MB", 6)
    caption = (
        f"{unit} (10^{power} bytes), planned, not run; M params: millions that train; Orin, s: the "
        "seconds of a step, modelled by the roofline of its GPU with f16 products"
    )
    table = Table(title=title, caption=caption, box=SIMPLE)
    table.add_column("scheme")
    table.add_column("frozen in")
    for heading in ("M params", "trained", "states", "frozen", "arena", "total", "Orin, s"):
        table.add_column(heading, justify="right")
    for plan in found:
        frozen = plan.frozen_weights if plan.scheme != "full" else "-"
        if isinstance(plan, Unplanned):
            table.add_row(plan.scheme, frozen, *["-"] * 7)
            continue
        sizes = (plan.trained_bytes, plan.states_bytes, plan.frozen_bytes, plan.arena_bytes)
        figures = [f"{size / 10**power:.2f}" for size in (*sizes, plan.total_bytes)]
        figures.append(f"{plan.orin_ms / 1e3:.2f}")
        table.add_row(plan.scheme, frozen, _millions(plan.trained), *figures)
    return table


def _millions(count: int) -> str:
    millions = count / 1e6
    return f"{millions:,.0f}" if millions >= 100 else f"{millions:.2f}"
