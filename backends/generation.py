"""Options of text generation: length, choice of tokens, and end tokens."""

from collections.abc import Callable
from dataclasses import dataclass

from pockengine.errors import RuntimeFailure

Notify = Callable[[int], bool | None]
"""Called with each new token; False ends the text."""


@dataclass(frozen=True)
class Generation:
    """At most `limit` tokens. With a temperature of 0 each is the likeliest.

    Else it is drawn from the fewest tokens that have the share `top_p` together. `ends` are tokens
    that end the text without being part of it.
    """

    limit: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise RuntimeFailure(f"limit must be at least 0 tokens, not {self.limit}")
