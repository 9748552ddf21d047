"""GGUF files: the bytes of each type, llama.cpp's names and row order, and damaged files."""

import math
import random
import struct
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pockengine.compiler.ir.blocks import Blocks
from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.grids import Grid
from pockengine.errors import ImportModelError
from pockengine.models import gguf_forms
from pockengine.models.gguf import read_gguf, write_gguf
from pockengine.models.gguf_forms import FORMS
from pockengine.models.gguf_names import gguf_tensors, write_gguf_tensors
from pockengine.tests.fuzz.mutate import mutate

LLAMA = SimpleNamespace(model_type="llama", num_attention_heads=2, num_key_value_heads=1)
CODES = np.arange(-16, 16)


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def keys() -> list[bytes]:
    """Return metadata: a string, arrays of strings, of numbers, of arrays, and the alignment."""
    return [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
        text("pairs") + struct.pack("<IIQ", 9, 9, 2) + struct.pack("<IQ2I", 4, 2, 1, 2) * 2,
        text("general.alignment") + struct.pack("<II", 4, 64),
    ]


def written(path: Path, tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> Path:
    """Write a file according to the format's specification."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys())) + b"".join(keys())
    data = b""
    for name, (kind, shape, stored) in tensors.items():
        data += bytes(-len(data) % 64)
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += stored
    path.write_bytes(head + bytes(-len(head) % 64) + data)
    return path


def every_type(path: Path, others: bool = True) -> Path:
    q8 = np.float16(0.5).tobytes() + CODES.astype(np.int8).tobytes()
    nibbles = (np.arange(16) | (np.arange(16)[::-1] << 4)).astype(np.uint8)
    q4 = np.float16(2).tobytes() + nibbles.tobytes()
    numbers = np.arange(6, dtype=np.float32)
    return written(
        path,
        {
            "f32": (0, (2, 3), numbers.tobytes()),
            "f16": (1, (6,), numbers.astype(np.float16).tobytes()),
            "bf16": (30, (6,), (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()),
            "q8": (8, (2, 32), q8 * 2),
            "q4": (2, (32,), q4),
            **({"other": (99, (256,), bytes(144))} if others else {}),
        },
    )


PACKAGED = {
    **{2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 39: "MXFP4"},
    **{10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"},
    **{20: "IQ4_NL", 23: "IQ4_XS", 34: "TQ1_0", 35: "TQ2_0"},
}
STORED_BITS = {"Q4_0": 4, "Q5_0": 8, "Q8_0": 8, "IQ4_NL": 8, "TQ1_0": 4, "TQ2_0": 4, "MXFP4": 8}
"""Bits of the blocks that represent a type exactly."""


def packaged(path: Path) -> Path:
    """Write random blocks of each type, with finite scales."""
    gguf = pytest.importorskip("gguf")
    rng, tensors = np.random.default_rng(0), {}
    for number, name in PACKAGED.items():
        group, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)]
        shape = (3, 2 * group)
        blocks = rng.integers(0, 32, (6, nbytes), np.uint8)
        if name == "MXFP4":  # halved scales that f16 has
            blocks[:, 0] += 104
        tensors[name] = (number, shape, blocks.tobytes())
    return written(path, tensors)


def test_types_of_the_package_are_decoded_as_by_ggml(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = packaged(tmp_path / "a.gguf")
    file = read_gguf(path)
    for tensor in gguf.GGUFReader(path).tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        actual = file.contents(tensor.name).read()
        assert actual.any()
        np.testing.assert_array_equal(actual, expected.reshape(actual.shape))


def test_mxfp4_is_decoded_as_by_ggml_for_every_scale_and_code(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    pairs = np.arange(256, dtype=np.uint8).reshape(16, 16)
    blocks = np.empty((253, 16, 17), np.uint8)  # larger scales overflow f32, and 255 is NaN
    blocks[..., 0], blocks[..., 1:] = np.arange(253, dtype=np.uint8)[:, None], pairs
    path = written(tmp_path / "a.gguf", {"all": (39, (253, 512), blocks.tobytes())})
    expected = gguf.quants.dequantize(blocks.reshape(-1), gguf.GGMLQuantizationType.MXFP4)
    file = read_gguf(path)
    actual = file.contents("all").read()
    np.testing.assert_array_equal(actual.reshape(-1), expected.reshape(-1))
    np.testing.assert_array_equal(file.form("all").decode(file.data("all")), expected.reshape(-1))
    assert np.isfinite(actual).all()
    one = bytes([255, 2] + [0] * 15)
    written(path, {"one": (39, (32,), one)})
    assert np.isnan(read_gguf(path).contents("one").read()).all()


def test_blocks_represent_types_with_one_scale_exactly(tmp_path: Path) -> None:
    file = read_gguf(packaged(tmp_path / "a.gguf"))
    grids = {name: file.contents(name) for name in file.entries}
    assert {
        name: stored.bits for name, stored in grids.items() if isinstance(stored, Grid)
    } == STORED_BITS
    for name, bits in STORED_BITS.items():
        blocks, grid = Blocks(bits, 1), grids[name]
        assert isinstance(grid, Grid)
        stored = grid.in_blocks(blocks)
        assert stored is not None
        np.testing.assert_array_equal(blocks.decode(*stored), file.contents(name).read())


def test_new_values_of_read_only_types_become_q8(tmp_path: Path) -> None:
    source = read_gguf(packaged(tmp_path / "a.gguf"))
    numbers = np.float32(np.random.default_rng(1).standard_normal((3, 512)))
    write_gguf(tmp_path / "b.gguf", source, {"Q4_K": InMemory(numbers)})
    again = read_gguf(tmp_path / "b.gguf")
    assert again.form("Q4_K").name == "Q8_0"
    np.testing.assert_allclose(again.contents("Q4_K").read(), numbers, atol=0.02)
    for name in source.entries.keys() - {"Q4_K"}:
        np.testing.assert_array_equal(again.data(name), source.data(name))


def test_error_names_the_package_that_reads_a_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packaged(tmp_path / "a.gguf")
    monkeypatch.setattr(gguf_forms, "missing", lambda extra: [extra])
    for cached in (gguf_forms._package, gguf_forms._packaged):
        cached.cache_clear()
    try:
        with pytest.raises(
            ImportModelError, match=r"Q6_K is of ggml's type 14.*pockengine\[gguf\]"
        ):
            read_gguf(path).contents("Q6_K")
    finally:
        for cached in (gguf_forms._package, gguf_forms._packaged):
            cached.cache_clear()


def test_every_type_is_read_as_specified(tmp_path: Path) -> None:
    file = read_gguf(every_type(tmp_path / "a.gguf"))
    numbers = np.arange(6, dtype=np.float32)
    assert np.array_equal(file.contents("f32").read(), numbers.reshape(2, 3))
    assert np.array_equal(file.contents("f16").read(), numbers)
    assert np.array_equal(file.contents("bf16").read(), numbers)
    assert np.array_equal(file.contents("q8").read(), np.tile(0.5 * CODES, (2, 1)))
    expected = 2 * (np.concatenate([np.arange(16), np.arange(16)[::-1]]) - 8)
    assert np.array_equal(file.contents("q4").read(), expected)
    with pytest.raises(ImportModelError, match=r"other is of ggml's type 99, not .*Q4_0"):
        file.contents("other")


def test_written_files_have_the_same_keys_and_types(tmp_path: Path) -> None:
    file = read_gguf(every_type(tmp_path / "a.gguf", others=False))
    write_gguf(tmp_path / "same.gguf", file, {})
    valid = (tmp_path / "a.gguf").read_bytes()
    assert (tmp_path / "same.gguf").read_bytes()[: len(valid)] == valid
    tight = 127 * np.random.default_rng(0).uniform(-1, 1, (2, 32)).astype(np.float32)
    new: dict[str, Contents] = {
        "f32": InMemory(np.full((2, 3), 7, np.float32)),
        "f16": InMemory(np.full(6, 0.5, np.float32)),
        "q8": InMemory(tight),
        "q4": InMemory(tight[0]),
    }
    write_gguf(tmp_path / "b.gguf", file, new)
    again = read_gguf(tmp_path / "b.gguf")
    for name, error in (("f32", 0), ("f16", 0), ("q8", 0.6), ("q4", 17)):
        found = again.contents(name).read()
        assert np.abs(found - new[name].read()).max() <= error, name
    assert np.array_equal(again.contents("bf16").read(), file.contents("bf16").read())


def test_query_and_key_rows_are_in_the_order_of_transformers(tmp_path: Path) -> None:
    rows = np.arange(8, dtype=np.float32)[:, None].repeat(2, 1)
    path = written(
        tmp_path / "a.gguf",
        {
            "blk.3.attn_q.weight": (0, (8, 2), rows.tobytes()),
            "blk.3.attn_v.weight": (0, (8, 2), rows.tobytes()),
            "rope_freqs.weight": (0, (2,), bytes(8)),
        },
    )
    found = gguf_tensors(path, LLAMA)
    query, value = (f"model.layers.3.self_attn.{part}_proj.weight" for part in "qv")
    assert set(found) == {query, value}
    assert found[query].read()[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert np.array_equal(found[value].read(), rows)
    changed = InMemory(found[query].read() + 10)
    write_gguf_tensors(path, LLAMA, {query: changed}, tmp_path / "b.gguf")
    assert np.array_equal(gguf_tensors(tmp_path / "b.gguf", LLAMA)[query].read(), changed.array)
    assert np.array_equal(
        read_gguf(tmp_path / "b.gguf").contents("blk.3.attn_q.weight").read(), rows + 10
    )


def test_unknown_families_are_refused(tmp_path: Path) -> None:
    path = every_type(tmp_path / "a.gguf")
    with pytest.raises(ImportModelError, match="says mamba"):
        gguf_tensors(path, SimpleNamespace(model_type="mamba"))


def read_all(path: Path) -> bool:
    """Read every tensor, as stored and by transformers' names; False if a file is refused."""
    try:
        file = read_gguf(path)
        found = [file.contents(name).read() for name in file.entries if name != "other"]
        found += [weight.read() for weight in gguf_tensors(path, LLAMA).values()]
    except ImportModelError:
        return False
    return all(array.dtype == np.float32 for array in found)


def test_deeply_nested_keys_are_refused(tmp_path: Path) -> None:
    path, key = tmp_path / "a.gguf", text("x") + struct.pack("<I", 9)
    nested = struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 4, 0)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + nested)
    with pytest.raises(ImportModelError, match="arrays nested more than 8 deep"):
        read_gguf(path)


@pytest.mark.parametrize("shape", [(64,), (2, 32, 32)])
@pytest.mark.parametrize(("kind", "group"), [(0, 128), (8, 34)])
def test_weights_of_another_rank_keep_their_layout(
    kind: int, group: int, shape: tuple[int, ...], tmp_path: Path
) -> None:
    row = {"blk.0.attn_qkv.weight": (kind, shape, bytes(math.prod(shape) // 32 * group))}
    path = written(tmp_path / "a.gguf", row)
    (found,) = gguf_tensors(path, SimpleNamespace(model_type="gpt2")).values()
    assert found.type.shape == shape


def test_damaged_files_raise_our_errors(tmp_path: Path) -> None:
    path = every_type(tmp_path / "a.gguf")
    valid, rng, refused = path.read_bytes(), random.Random(0), 0
    for turn in range(600):
        path.write_bytes(valid[: turn % len(valid)] if turn % 3 else mutate(valid, rng))
        refused += not read_all(path)
    assert refused > 300


def with_extreme_number(data: bytes, rng: random.Random) -> bytes:
    """Replace four or eight bytes by a number that may break a count, size or offset."""
    width = rng.choice((4, 8))
    near = (1 << rng.choice((0, 5, 16, 31, 32, 62, 63, 64))) + rng.choice((-1, 0, 1))
    at = rng.randrange(len(data) - width)
    return data[:at] + (near % (1 << 8 * width)).to_bytes(width, "little") + data[at + width :]


def test_invalid_counts_and_sizes_do_not_allocate_memory(tmp_path: Path) -> None:
    path, rng, refused = weights(tmp_path / "a.gguf"), random.Random(1), 0
    valid = path.read_bytes()
    assert read_all(path)
    tracemalloc.start()
    for _ in range(1500):
        data = valid
        for _ in range(rng.choice((1, 1, 2))):
            data = with_extreme_number(data, rng)
        path.write_bytes(data)
        refused += not read_all(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 300 < refused < 1500
    assert peak < 2_000_000


def weights(path: Path) -> Path:
    """Write a weight with permuted rows, a block-quantized one, and a plain one."""
    return written(
        path,
        {
            "blk.0.attn_q.weight": (0, (8, 2), bytes(64)),
            "blk.0.attn_k.weight": (8, (4, 32), bytes(4 * 34)),
            "blk.0.ffn_up.weight": (1, (3, 2), bytes(12)),
        },
    )


SIZES = st.sampled_from([0, 1, 2, 4, 32, 64, 2**32, 2**63, 2**64 - 1])


@given(
    name=st.sampled_from(["a", "blk.0.attn_q.weight", "blk.0.attn_k.weight"]),
    kind=st.sampled_from([*FORMS, 3, 2**32 - 1]),
    shape=st.lists(SIZES, max_size=5),
    size=st.integers(0, 300),
)
@example("a", 8, [], 300)
@example("blk.0.attn_q.weight", 0, [], 300)
@example("blk.0.attn_q.weight", 2, [32], 18)
def test_any_table_row_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, kind: int, shape: list[int], size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "row.gguf"
    written(path, {name: (kind, tuple(shape), bytes(size))})
    if read_all(path):
        again = path.with_suffix(".again")
        write_gguf(again, read_gguf(path), {})
        assert read_gguf(again).entries == read_gguf(path).entries
