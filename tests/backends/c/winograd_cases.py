"""Shared by both tests of Winograd's method: plans by arguments, and random cases."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pockengine.backends.native.kernel import Kernel
from pockengine.compiler.ir import Node
from pockengine.devices.schema import Device
from pockengine.tests.backends.c.anchors import case_of, check
from pockengine.tests.backends.c.problems import SETTINGS

SIZES = [(2, "avx2"), (4, "avx512"), (4, "sse2")]
"""Tile sizes, each with an instruction set."""
PADDINGS = st.tuples(*[st.integers(0, 3)] * 4)
PICTURES = st.tuples(st.integers(1, 3), st.integers(3, 14), st.integers(3, 14))
FEATURES = st.sampled_from([1, 4, 8, 17, 24, 49])


def cheapest(plans: Sequence[Any], split: str | None, block: int | None) -> Any:
    """Return the cheapest plan, changed by the test's arguments."""
    plan = min(plans, key=lambda each: each.cycles)
    if split is not None:
        plan = replace(plan, split=split)
    return plan if block is None else replace(plan, block=min(block, plan.tiling.tiles))


def check_any(
    nodes: st.SearchStrategy[Node],
    splits: Sequence[str],
    emit: Callable[[str, int | None], Callable[[Node, Device], Kernel]],
    isa: str,
    folder: Path,
    tolerance: float,
) -> None:
    """Check nodes in groups of four, each node with its own plan, under sanitizers."""
    plans = st.tuples(st.sampled_from(splits), st.sampled_from([None, 5]))

    @settings(max_examples=1, **SETTINGS)
    @given(st.lists(st.tuples(nodes, plans), min_size=4, max_size=4))
    def agrees(drawn: list[tuple[Node, tuple[str, int | None]]]) -> None:
        cases = [
            case_of(node, emit(split, block), isa, seed)
            for seed, (node, (split, block)) in enumerate(drawn)
        ]
        check(cases, folder, tolerance=tolerance)

    agrees()
