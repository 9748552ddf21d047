"""How many rows of a listed model's inputs this machine holds."""

import math

from pockengine.devices.host import detect_memory
from pockengine.errors import ImportModelError
from pockengine.models.registry import ModelName


def check_rows(model: ModelName, batch: int, batches: int = 1) -> None:
    """ImportModelError if these batches of inputs exceed this machine's memory."""
    row = math.prod(model.input_shape) * (8 if model.known.vocabulary else 4)
    need, memory = batches * batch * row, detect_memory()
    if memory and need > memory:
        several = f"{batches} batches" if batches > 1 else "a batch"
        raise ImportModelError(
            f"{several} of {batch} inputs of {model} take {need / 1e9:,.0f} GB; this machine has "
            f"{memory / 1e9:,.0f} GB of memory: lower --batch"
            + (" or --steps" if batches > 1 else "")
        )
