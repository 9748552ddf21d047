"""The toy backend: its code of a program is each entry's graph as text, and the plan in numbers."""

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
"""Of a product: it is filled with rubbish, so that a plan that overlaps it is found out."""


@dataclass(frozen=True)
class ToyBackend:
    """The backend set to a device; it has no options."""

    device: Device

    def target(self) -> Target:
        """Return the fusions that NumPy evaluates as one node."""
        memory = MemorySpace(size=self.device.memory_bytes)
        return Target(FUSION, self.choose, self.device.name, spaces=(memory,))

    def choose(self, node: Node) -> Choice:
        """Choose the one way that there is: a multiply-add a cycle."""
        cost = node_cost(node)
        return Choice("NUMPY", float(cost), SCRATCH_BYTES if cost else 0)

    def with_less_scratch(self) -> None:
        """Return None: no kernel could do with less."""

    def facts(self, program: Program) -> CodeFacts:
        """Count every node as a kernel."""
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
        """Write nothing: no other program links a toy."""


def _plan(entry: Entry) -> dict[str, object]:
    """Return the entry's plan by the names of values, and the scratch of each node by its place."""
    plan = entry.plan
    scratch = (plan.scratch.get(node) for node in entry.graph.nodes)
    return {
        "values": {value.name: place.offset for value, place in plan.values.items()},
        "aliases": {value.name: other.name for value, other in plan.aliases.items()},
        "scratch": [place and [place.offset, place.size] for place in scratch],
    }


def make(device: Device, options: BackendOptions) -> ToyBackend:
    """Set the backend to a device."""
    options.refuse_all_but("toy", frozenset())
    return ToyBackend(device)
