"""What recomputation saves and costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recomputation:
    """What is recomputed to save memory: values by name, extra multiply-adds, peak bytes."""

    dropped: tuple[str, ...]
    extra_operations: int
    peak_before: int
    peak_after: int
