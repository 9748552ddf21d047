"""How much of a memory budget one block of a tiled computation takes."""

BUDGET_SHARE = 16
"""Divisor of the budget: several blocks are live at once, beside the saved activations."""


def block_bytes(memory_budget: int) -> int:
    """Return the maximum bytes of a block's scores, logits or decoded weights."""
    return memory_budget // BUDGET_SHARE
