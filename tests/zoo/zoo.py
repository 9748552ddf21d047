"""The zoo: tiny models, trained by the compiled step and by PyTorch; one verdict per line.

bazel run //tests/zoo:zoo -- [--only PATTERN ...]
"""

from collections.abc import Callable

import torch

from pockengine.tests.zoo.verdict import command
from pockengine.tests.zoo.zoo_cases import Builder, Case
from pockengine.tests.zoo.zoo_language import LANGUAGE
from pockengine.tests.zoo.zoo_pictures import PICTURES
from pockengine.tests.zoo.zoo_plain import PLAIN
from pockengine.tests.zoo.zoo_run import compared


def seeded(build: Builder) -> Callable[[], Case]:
    """Build a model with its own seed, independent of models built before."""

    def built() -> Case:
        torch.manual_seed(0)
        return build()

    return built


ZOO = {name: seeded(build) for name, build in {**PLAIN, **LANGUAGE, **PICTURES}.items()}

if __name__ == "__main__":
    command(ZOO, compared)()
