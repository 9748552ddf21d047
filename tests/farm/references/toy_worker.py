"""A worker without a framework; the engine name selects its behavior."""

import os
import sys
import time

import numpy as np
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors
from pockengine.farm.references.serve import serve


class Toy:
    """Add one to a counter at each step; the loss is the counter."""

    def __init__(self, data: JobData, engine: str) -> None:
        self.engine = engine
        self.counter = float(data.weights["counter"][0])

    def step(self, index: int) -> float:
        if self.engine == "dies":
            print("what it printed last", file=sys.stderr)
            os._exit(7)
        if self.engine == "hangs":
            time.sleep(60)
        print("noise on stdout")
        self.counter += 1
        return self.counter

    def predict(self, index: int) -> NDArray[np.float32]:
        return np.full((1, 2), self.counter, np.float32)

    def tensors(self) -> Tensors:
        return {"counter": np.array([self.counter], np.float32)}


def prepare(data: JobData, engine: str, threads: int) -> Toy:
    if engine == "refuses":
        raise FarmError("toys cannot do that")
    return Toy(data, engine)


if __name__ == "__main__":
    serve("toy 1", prepare)
