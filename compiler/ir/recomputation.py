"""Result of recomputation: bytes saved and operations added."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recomputation:
    """Recomputed values by name, extra multiply-adds, peak bytes, and what a solver found."""

    dropped: tuple[str, ...]
    extra_operations: int
    peak_before: int
    peak_after: int
    solver: str | None = None
