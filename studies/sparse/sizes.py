"""The scale of the study: sizes of parts and lengths of trainings, which options change."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Examples of each part, and the seed that draws them (not the seed of a training run).

    `more` is the number of further examples for rates and races besides the validation part, which
    alone cannot distinguish schemes that differ by a point.
    """

    train: int
    validation: int
    test: int
    seed: int = 0
    more: int = 0

    def __str__(self) -> str:
        more = f" and {self.more} more" if self.more else ""
        return f"{self.train} train, {self.validation}{more} validation, {self.test} test"
