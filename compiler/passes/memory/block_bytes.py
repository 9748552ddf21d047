"""How much of a memory budget one block of a tiled computation takes."""

BUDGET_SHARE = 16
"""Several blocks' operands and results are alive at once, beside all else that is saved."""


def block_bytes(memory_budget: int) -> int:
    """Return the most bytes of a block's scores, logits or decoded weights."""
    return memory_budget // BUDGET_SHARE
