"""Weights and data of the common models, two models written in each framework.

The same small residual net and the same small transformer are written in each framework
(`common_*.py`), loaded with these weights, imported, and trained for ten steps in our oracle. All
results must equal those of the model in our own ops (`common_reference.py`).
"""

import numpy as np

MODELS = ("resnet", "transformer")
FRAMEWORKS = ("torch", "keras", "jax", "onnx")
STEPS, BATCH, CLASSES, LR, MOMENTUM = 10, 4, 5, 0.05, 0.9
SIDE, WORDS, LENGTH, WIDTH, HEADS, HIDDEN = 8, 20, 6, 16, 2, 32
EPSILON = 1e-5

CONVOLUTIONS = {
    "stem": (3, 3, 3, 8),
    "a1": (3, 3, 8, 8),
    "a2": (3, 3, 8, 8),
    "b1": (3, 3, 8, 12),
    "b2": (3, 3, 12, 12),
    "skip": (1, 1, 8, 12),
}
"""Kernels (KH, KW, I, O) of the residual net; each is followed by a batch norm."""

LINEAR = {
    "query": (WIDTH, WIDTH),
    "key": (WIDTH, WIDTH),
    "value": (WIDTH, WIDTH),
    "out": (WIDTH, WIDTH),
    "wide": (WIDTH, HIDDEN),
    "narrow": (HIDDEN, WIDTH),
    "head": (WIDTH, CLASSES),
}
"""Kernels (in, out) of the transformer; each has a bias."""

NORMS = ("before_attention", "before_mlp", "before_head")

Weights = dict[str, np.ndarray]


def weights(model: str) -> Weights:
    """Return the weights by name: kernels as (KH, KW, I, O) and (in, out)."""
    rng = np.random.default_rng(7)

    def kernel(shape: tuple[int, ...]) -> np.ndarray:
        scale = np.sqrt(np.prod(shape[:-1]))
        return (rng.standard_normal(shape) / scale).astype(np.float32)

    def near(center: float, size: int) -> np.ndarray:
        return (center + 0.1 * rng.standard_normal(size)).astype(np.float32)

    found: Weights = {}
    if model == "resnet":
        for name, shape in CONVOLUTIONS.items():
            found[f"{name}.kernel"] = kernel(shape)
            found |= {f"{name}.scale": near(1, shape[3]), f"{name}.shift": near(0, shape[3])}
        found |= {"head.kernel": kernel((12, CLASSES)), "head.bias": near(0, CLASSES)}
        return found
    found |= {"embedding": kernel((WORDS, WIDTH)) * 4, "positions": kernel((LENGTH, WIDTH))}
    for name, sizes in LINEAR.items():
        found |= {f"{name}.kernel": kernel(sizes), f"{name}.bias": near(0, sizes[1])}
    for name in NORMS:
        found |= {f"{name}.scale": near(1, WIDTH), f"{name}.shift": near(0, WIDTH)}
    return found


def example(model: str) -> np.ndarray:
    """Return the first batch: images (N, H, W, C), or token ids (N, length)."""
    return batches(model)[0][0]


def batches(model: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ten batches of data and labels."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(STEPS):
        pictures = rng.standard_normal((BATCH, SIDE, SIDE, 3)).astype(np.float32)
        words = rng.integers(WORDS, size=(BATCH, LENGTH))
        labels = rng.integers(CLASSES, size=BATCH)
        found.append((pictures if model == "resnet" else words, labels))
    return found
