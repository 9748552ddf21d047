"""Random int8 TFLite files: every tensor equals the reference interpreter's bit for bit."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from pockengine.tests.frontends.tensorflow.int8_files import check_file, int8_file, interpreter_of

L = keras.layers
ROWS = 64


class Product(keras.layers.Layer):
    """The product of two activations: BATCH_MATMUL."""

    def call(self, a: Any, b: Any) -> Any:
        return keras.ops.matmul(a, b)


def linear_net(rng: np.random.Generator) -> keras.Model:
    """Return linear layers, of rows or matrices, with a product of activations between them."""
    width = lambda: int(rng.integers(3, 200))  # noqa: E731
    act = lambda: str(rng.choice(["linear", "relu", "relu6"]))  # noqa: E731
    x = y = keras.Input((4, width()), batch_size=ROWS)
    for _ in range(int(rng.integers(1, 3))):
        y = L.Dense(width(), act(), bias_initializer="glorot_normal")(y)
    if rng.integers(2):
        y = Product()(y, L.Permute((2, 1))(L.Dense(y.shape[2])(y)))
    y = L.Flatten()(y)
    for _ in range(3):
        y = L.Dense(width(), act())(y)
    return keras.Model(x, y)


def operators_of(path: Path) -> set[str]:
    """Return the names of a file's operators."""
    return {detail["op_name"] for detail in interpreter_of(path)._get_ops_details()}


NETS = {"linear": (linear_net, {"FULLY_CONNECTED", "BATCH_MATMUL"})}


@pytest.mark.parametrize("kind", NETS)
def test_random_nets_equal_the_interpreter(kind: str, tmp_path: Path) -> None:
    build, expected = NETS[kind]
    found = set()
    for seed in range(6):
        keras.utils.set_random_seed(seed)
        path = int8_file(build(np.random.default_rng(seed)), tmp_path / f"{seed}.tflite")
        found |= operators_of(path)
        check_file(path)
    assert expected <= found
