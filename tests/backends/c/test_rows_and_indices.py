"""Row norms, gathers, scans and random numbers in generated C agree with the oracle."""

from pathlib import Path

import numpy as np

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.ir import F32, I32, I64, Builder, DType, Graph, Node, TensorType, Value
from pockengine.tests.backends.c.harness import SANITIZED, Case, device_of, draw_array, run_cases

ISAS = ("avx512", "avx2", "sse2")


def check(nodes: list[Node], folder: Path, rtol: float = 0.0, **data: np.ndarray) -> None:
    """Compare each node's kernel with the oracle; operands are those of `data`, or random."""
    rng = np.random.default_rng(0)
    cases = []
    for index, node in enumerate(nodes):
        backend = CBackend(device_of(ISAS[index % 3]))
        arrays = [data.get(value.name, draw_array(rng, value)) for value in node.operands]
        cases.append(Case(node, backend.kernel(node), tuple(arrays)))
    compiler = ("gcc", *SANITIZED, "-march=native")
    for case, runs in zip(cases, run_cases(cases, folder, compiler), strict=True):
        for results in runs:
            for found, expected in zip(results, case.expected, strict=True):
                np.testing.assert_allclose(found, expected, rtol, rtol, err_msg=repr(case.node))


def builder() -> Builder:
    return Builder(Graph("case"))


def take(g: Builder, name: str, dtype: DType, *shape: int) -> Value:
    return g.input(name, TensorType(dtype, shape))


def test_row_norms_and_their_gradients(tmp_path: Path) -> None:
    nodes = []
    for shape in ((1, 1), (3, 7), (2, 5, 16), (4, 33), (2, 768)):
        for op in ("layer_norm", "rms_norm"):
            g = builder()
            nodes.append(g.emit(op, take(g, "x", F32, *shape), eps=1e-3))
            rstd = take(g, "rstd", F32, *shape[:-1], 1)
            pair = take(g, "dy", F32, *shape), take(g, "y", F32, *shape)
            nodes.append(g.emit(f"{op}_dx", *pair, rstd))
    check(nodes, tmp_path, rtol=2e-5)


def test_gathers_and_scatters_stay_inside_for_any_index(tmp_path: Path) -> None:
    index = np.array([[3, -7, 0], [2, 99, 3]])
    nodes = []
    for dtype, name in ((I64, "wide"), (I32, "narrow")):
        for shape, axis in (((4, 5), 0), ((2, 4, 70), 1), ((3, 2, 4), 2)):
            g = builder()
            places = take(g, name, dtype, 2, 3)
            taken = g.emit("take", take(g, "x", F32, *shape), places, axis=axis)
            for kind in (F32, I32):
                dy = take(g, f"dy_{kind.value}", kind, *taken.result.shape)
                nodes.append(g.emit("take_dx", dy, places, axis=axis, input_shape=shape))
                total = take(g, f"total_{kind.value}", kind, *shape)
                nodes.append(g.emit("take_add", total, dy, places, axis=axis))
            nodes.append(taken)
        for shape, axis in (((4, 3), 0), ((2, 9), 1), ((5, 3), 0)):
            g = builder()
            places = take(g, name, dtype, 2, 3)
            nodes.append(g.emit("take_along", take(g, "x", F32, *shape), places, axis=axis))
            dy = take(g, "dy", F32, 2, 3)
            nodes.append(g.emit("take_along_dx", dy, places, axis=axis, input_shape=shape))
    check(nodes, tmp_path, rtol=1e-6, wide=index, narrow=index.astype(np.int32))


def test_scans_along_any_axis(tmp_path: Path) -> None:
    nodes = []
    for axis in range(3):
        for reverse in (False, True):
            for dtype in (F32, I32):
                g = builder()
                x = take(g, "x", dtype, 3, 17, 5)
                nodes.append(g.emit("cumsum", x, axis=axis, reverse=reverse))
        g = builder()
        nodes.append(g.emit("argmax", take(g, "x", F32, 3, 17, 5), axis=axis))
    check(nodes, tmp_path, rtol=1e-6)


def test_paths_of_labels_and_their_gradients(tmp_path: Path) -> None:
    labels = np.array([[1, 1, 3, 0], [4, 2, 2, 2], [1, 9, -1, 0], [0, 1, 5, 1], [3, 3, 3, 3]])
    lengths, counts = np.array([9, 4, 7, 6, 3]), np.array([3, 2, 3, 0, 4], np.int32)
    dy = np.array([1.0, -0.5, 2.0, 0.7, 0.0], np.float32)
    nodes = []
    for blank in (2, 5):
        g = builder()
        inputs = [take(g, "labels", I64, 5, 4), take(g, "lengths", I64, 5)]
        inputs.append(take(g, "counts", I32, 5))
        logits = take(g, "x", F32, 9, 5, 6)
        nodes.append(g.emit("ctc_loss", logits, *inputs, blank=blank))
        nodes.append(g.emit("ctc_loss_dx", logits, *inputs, take(g, "dy", F32, 5), blank=blank))
    check(nodes, tmp_path, 2e-6, labels=labels, lengths=lengths, counts=counts, dy=dy)


def test_random_numbers_are_the_oracles_bit_for_bit(tmp_path: Path) -> None:
    nodes = []
    for stream in (0, 1, 12345):
        g = builder()
        seed = take(g, "seed", I32)
        nodes.append(g.emit("random_uniform", seed, shape=(7, 31), stream=stream))
        nodes.append(g.emit("dropout", take(g, "x", F32, 7, 31), seed, p=0.3, stream=stream))
    check(nodes, tmp_path, seed=np.asarray(-77, np.int32))
