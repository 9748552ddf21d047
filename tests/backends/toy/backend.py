"""The toy backend: its code is the text of each entry's graph, and the memory plan in numbers."""

import json
from dataclasses import dataclass
from pathlib import Path

from pockengine.backends.placement import lay_out
from pockengine.backends.protocol import BackendOptions, Built, CodeFacts, Progress
from pockengine.compiler.ir import Node
from pockengine.compiler.ir.text import print_graph
from pockengine.compiler.ops import node_cost
from pockengine.compiler.program import Entry, Program
from pockengine.compiler.target import Choice, FusionRules, MemorySpace, Target
from pockengine.devices.schema import Device

FUSION = FusionRules(
    epilogue=frozenset({"matmul", "conv2d"}),
    update=frozenset({"matmul"}),
    prologue={"reduce_sum": (0,)},
)
SCRATCH_BYTES = 192
"""Scratch bytes of a product: filled with garbage, to reveal an overlap in the plan."""


@dataclass(frozen=True)
class ToyBackend:
    """The toy backend of a device; it has no options."""

    device: Device

    def target(self) -> Target:
        """Return the fusions that NumPy evaluates as one node."""
        memory = MemorySpace(size=self.device.memory_bytes)
        return Target(FUSION, self.choose, self.device.name, spaces=(memory,))

    def choose(self, node: Node) -> Choice:
        """Choose the only implementation: one multiply-add per cycle."""
        cost = node_cost(node)
        return Choice("NUMPY", float(cost), SCRATCH_BYTES if cost else 0)

    def with_less_scratch(self) -> None:
        """Return None: no kernel could use less scratch."""

    def facts(self, program: Program) -> CodeFacts:
        """Count each node as a kernel."""
        return CodeFacts("numpy", 1, sum(len(e.graph.nodes) for e in program.entries.values()))

    def write(self, program: Program, folder: Path) -> None:
        """Write a graph and a plan for each entry."""
        places = lay_out(program).places
        params = {name: [place.memory, place.offset] for name, place in places.items()}
        for number, entry in enumerate(program.entries.values()):
            (folder / f"{number}.ir").write_text(print_graph(entry.graph), encoding="utf-8")
        plans = {name: _plan(entry) for name, entry in program.entries.items()}
        text = json.dumps({"params": params, "entries": plans}, indent=1)
        (folder / "plan.json").write_text(text, encoding="utf-8")

    def build(self, code: Path, out: Path, progress: Progress | None = None) -> Built:
        """Build nothing: the written files are run directly."""
        return Built()

    def package(self, program: Program, code: Path, place: Path) -> None:
        """Write nothing: a toy artifact has no library."""


def _plan(entry: Entry) -> dict[str, object]:
    """Return the entry's plan by names of values, and the scratch of each node by index."""
    plan = entry.plan
    scratch = (plan.scratch.get(node) for node in entry.graph.nodes)
    return {
        "values": {value.name: place.offset for value, place in plan.values.items()},
        "aliases": {value.name: other.name for value, other in plan.aliases.items()},
        "scratch": [place and [place.offset, place.size] for place in scratch],
    }


def make(device: Device, options: BackendOptions) -> ToyBackend:
    """Return the backend of a device."""
    options.refuse_all_but("toy", frozenset())
    return ToyBackend(device)
