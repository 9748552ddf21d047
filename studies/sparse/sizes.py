"""How much of a data set is used, and for how long: the study's scale, which options change."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Examples of each part, and the seed that draws them (not the seed of a training run)."""

    train: int
    validation: int
    test: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.train} train, {self.validation} validation, {self.test} test"
