"""How much of a data set is used, and for how long: the study's scale, which options change."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Examples of each part, and the seed that draws them (not the seed of a training run).

    `more` are further examples that judge rates and races beside the validation part:
    by that alone schemes that differ by a point are not told apart.
    """

    train: int
    validation: int
    test: int
    seed: int = 0
    more: int = 0

    def __str__(self) -> str:
        more = f" and {self.more} more" if self.more else ""
        return f"{self.train} train, {self.validation}{more} validation, {self.test} test"
