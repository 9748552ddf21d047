"""Index inputs: their ranges are found, and values outside them never reach a step."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pockengine.backends.artifact import write_artifact
from pockengine.backends.native.runtime_files import runtime_sources
from pockengine.backends.registry import open_session
from pockengine.compiler.compile import compile_program
from pockengine.compiler.index_ranges import IndexRange, index_ranges
from pockengine.compiler.ir import I32, I64, Builder, Graph, TensorType, Value
from pockengine.devices.schema import load_device
from pockengine.errors import RuntimeFailure
from pockengine.tests.backends.c.harness import COMMON, SANITIZED, WARNINGS
from pockengine.tests.backends.c.objects import build_executable
from pockengine.tests.backends.c.programs import build_sanitized, compile_for
from pockengine.tests.backends.c.runner import Runner

ROWS, CLASSES = 6, 5


def ranges_of(g: Builder, index: Value, axis: int = 0) -> list[IndexRange]:
    """Return the ranges found for rows of a table read at these indices."""
    table = g.param("table", np.ones((ROWS, 3), np.float32))
    g.output("rows", g.take(table, index, axis=axis))
    return index_ranges(g.graph)


def new_input(*shape: int, dtype: object = I64) -> tuple[Builder, Value]:
    g = Builder(Graph("case"))
    return g, g.input("ids", TensorType(dtype, shape))


def allowed(found: list[IndexRange]) -> list[tuple[int, int, int]]:
    return [(r.low, r.high, r.also) for r in found]


def elements(r: IndexRange) -> list[int]:
    return [
        r.start + i * r.row_stride + j * r.stride for i in range(r.rows) for j in range(r.count)
    ]


def test_an_index_is_followed_through_copies() -> None:
    g, ids = new_input(2, 4)
    part = g.slice(ids, start=(0, 1), stop=(2, 4), step=(1, 1))
    padded = g.pad(g.transpose(part, perm=(1, 0)), low=(0, 1), high=(0, 0), value=0)
    (found,) = ranges_of(g, g.reshape(padded, shape=(9,)))
    assert (found.low, found.high) == (0, ROWS - 1)
    assert elements(found) == [1, 2, 3, 5, 6, 7]


def test_columns_have_ranges_of_their_own() -> None:
    g, ids = new_input(5, 2)
    table = g.param("small", np.ones((2, 3), np.float32))
    columns = [g.slice(ids, start=(0, i), stop=(5, i + 1), step=(1, 1)) for i in (0, 1)]
    g.output("few", g.take(table, columns[1], axis=0))
    found = ranges_of(g, columns[0])
    assert [(r.high, elements(r)) for r in found] == [(1, [1, 3, 5, 7, 9]), (5, [0, 2, 4, 6, 8])]


def test_a_wrapped_index_may_be_negative() -> None:
    g, ids = new_input(4, dtype=I32)
    size, zero = g.scalar(ROWS, I32), g.scalar(0, I32)
    wrapped = g.where(g.lt(ids, zero), g.add(ids, size), ids)
    assert allowed(ranges_of(g, wrapped)) == [(-ROWS, ROWS - 1, -ROWS)]


def test_a_masked_label_is_one_more() -> None:
    g, ids = new_input(4)
    ignored = g.scalar(-100, I64)
    index = g.where(g.ne(ids, ignored), ids, g.scalar(0, I64))
    assert allowed(ranges_of(g, index)) == [(0, ROWS - 1, -100)]


def test_what_is_clamped_or_mixed_has_no_range() -> None:
    g, ids = new_input(4)
    clamped = g.minimum(g.maximum(ids, g.scalar(0, I64)), g.scalar(ROWS - 1, I64))
    assert not ranges_of(g, clamped)
    g, ids = new_input(4)
    other = g.input("other", TensorType(I64, (4,)))
    assert not ranges_of(g, g.add(ids, other))
    g, ids = new_input(4)
    assert not ranges_of(g, g.add(ids, g.constant(np.arange(4))))


def test_a_framework_may_compute_with_any_index() -> None:
    g, ids = new_input(4)
    g.graph.checks_indices = False
    assert not ranges_of(g, ids)


def test_labels_are_checked_for_every_framework() -> None:
    graph = words_graph()
    graph.checks_indices = False
    assert [found.input for found in index_ranges(graph)] == ["labels"]


def test_a_large_table_costs_little() -> None:
    g, ids = new_input(3)
    table = g.param("table", np.zeros((5_000_000, 1), np.float32))
    g.output("rows", g.take(table, ids, axis=0))
    assert allowed(index_ranges(g.graph)) == [(0, 4_999_999, 0)]


def words_graph() -> Graph:
    """An embedding, its mean over three words, and the cross entropy of a head."""
    graph = Graph("words")
    g = Builder(graph)
    words = g.input("words", TensorType(I32, (4, 3)))
    labels = g.input("labels", TensorType(I64, (4,)))
    rng = np.random.default_rng(0)
    table = g.param("table", rng.standard_normal((ROWS, 8)).astype(np.float32))
    head = g.param("head", rng.standard_normal((8, CLASSES)).astype(np.float32))
    mean = g.reduce_mean(g.take(table, words, axis=0), axes=(1,), keepdims=False)
    logits = g.matmul(mean, head)
    g.output("logits", logits)
    g.output("loss", g.cross_entropy(logits, labels))
    return graph


def sound() -> dict[str, np.ndarray]:
    return {"words": np.full((4, 3), ROWS - 1, np.int32), "labels": np.array([0, 4, -100, 2])}


WRONG = [
    ("labels", 2, 5, r"labels holds 5 at \[2\]; entry train takes 0 to 4 or -100"),
    ("labels", 0, -1, r"labels holds -1 at \[0\]"),
    ("labels", 3, 2**40, r"labels holds 1099511627776 at \[3\]"),
    ("words", 7, 6, r"words holds 6 at \[2, 1\]; entry train takes 0 to 5 there"),
    ("words", 0, -1, r"words holds -1 at \[0, 0\]"),
]


def test_every_entry_knows_its_ranges() -> None:
    program = compile_program(words_graph())
    for name, expected in (("train", 2), ("evaluate", 2), ("predict", 1)):
        assert len(index_ranges(program.entries[name].graph)) == expected


def test_a_wrong_index_trains_nothing(tmp_path: Path) -> None:
    program, backend = compile_for(words_graph(), load_device("host"))
    with open_session(write_artifact(program, backend, tmp_path / "words")) as session:
        session.train_step(sound(), lr=0.1)
        before = session.params()
        for name, place, number, words in WRONG:
            inputs = sound()
            inputs[name].flat[place] = number
            with pytest.raises(RuntimeFailure, match=words):
                session.train_step(inputs, lr=0.1)
        assert session.steps == 1
        for name, array in session.params().items():
            np.testing.assert_array_equal(array, before[name])


def new_runner(folder: Path, flags: tuple[str, ...] = SANITIZED) -> Runner:
    path, program = build_sanitized(words_graph(), folder, flags)
    weights, data = folder / "weights", folder / "data"
    params = {name: param.data for name, param in program.params.items()}
    save_file({**params, **program.constants}, weights)
    return Runner(path, program, weights, data)


def test_the_runner_refuses_a_wrong_index(tmp_path: Path) -> None:
    runner, saved = new_runner(tmp_path), tmp_path / "saved"
    for name, place, number, _ in WRONG:
        inputs = sound()
        inputs[name].flat[place] = number
        rows = {key: np.concatenate([array, inputs[key]]) for key, array in sound().items()}
        save_file(rows, runner.data)
        done = runner.train(2, "--save", saved)
        assert (done.returncode, saved.exists()) == (1, False)
        assert f"input {name} holds {number} at" in done.stderr
        assert "saved" not in done.stdout


def test_unchecked_indices_stay_inside_of_memory(tmp_path: Path) -> None:
    """Range checks are a convenience; without them kernels must still stay within operands."""
    path, program = build_sanitized(words_graph(), tmp_path)
    (tmp_path / "runtime" / "core" / "pe_ranges.c").write_text(
        '#include "pe.h"\npe_status pe_check_ranges(pe_session *s, const pe_entry *e) {\n'
        "    (void)s, (void)e;\n    return PE_OK;\n}\n"
        "pe_status pe_check_part(pe_session *s, const pe_entry *e, int64_t part, int64_t parts) {\n"
        "    (void)part, (void)parts;\n    return pe_check_ranges(s, e);\n}\n"
    )
    sources = [*tmp_path.glob("*.c"), *runtime_sources(tmp_path / "runtime")]
    compiler = ("gcc", *COMMON, *SANITIZED, *WARNINGS, "-march=x86-64-v3")
    build_executable(sources, compiler, tmp_path / "runtime", path)
    weights, data = tmp_path / "weights", tmp_path / "data"
    params = {name: param.data for name, param in program.params.items()}
    save_file({**params, **program.constants}, weights)
    wild = np.array([-(2**63), -(2**31), -1, ROWS, 2**31 - 1, 2**62])
    inputs = {"words": np.resize(np.clip(wild, -(2**31), 2**31 - 1).astype(np.int32), (4, 3))}
    for number in wild:
        save_file({**inputs, "labels": np.full(4, number)}, data)
        done = Runner(path, program, weights, data).train(1)
        assert done.returncode == 3, done.stderr  # a NaN loss, and no sanitizer report
        assert "Sanitizer" not in done.stderr
