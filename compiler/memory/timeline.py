"""Arena use of an entry, kernel by kernel."""

from itertools import accumulate

from pockengine.compiler.memory.lifetime import lifetimes
from pockengine.compiler.program import Entry
from pockengine.compiler.target import ALIGNMENT


def live_bytes(entry: Entry, alignment: int = ALIGNMENT) -> list[int]:
    """Return the bytes alive at each node, in order; the largest is the plan's lower bound."""
    scratch = {node: place.size for node, place in entry.plan.scratch.items()}
    count = len(entry.graph.nodes)
    change = [0] * (count + 1)
    alive = lifetimes(
        entry.graph, lambda node: scratch.get(node, 0), alignment, entry.plan.in_place
    )
    for buffer in alive.buffers:
        change[max(buffer.first, 0)] += buffer.room
        change[min(buffer.last + 1, count)] -= buffer.room
    return list(accumulate(change[:count]))
