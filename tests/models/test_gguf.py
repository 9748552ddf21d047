"""GGUF files: the bytes of each type, llama.cpp's names and order of rows, and damage."""

import random
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pockengine.compiler.ir.contents import Contents, Held
from pockengine.errors import ImportModelError
from pockengine.models.gguf import read_gguf, write_gguf
from pockengine.models.gguf_names import gguf_tensors, write_gguf_tensors
from pockengine.tests.fuzz.mutate import mutate

LLAMA = SimpleNamespace(model_type="llama", num_attention_heads=2, num_key_value_heads=1)
CODES = np.arange(-16, 16)


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()


def keys() -> list[bytes]:
    """A text, an array of texts, an array of numbers, and the alignment."""
    return [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"),
        text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
        text("general.alignment") + struct.pack("<II", 4, 64),
    ]


def written(path: Path, tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> Path:
    """Write a file by hand, as the format's description has it."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys())) + b"".join(keys())
    data = b""
    for name, (kind, shape, held) in tensors.items():
        data += bytes(-len(data) % 64)
        head += text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += held
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
            **({"other": (12, (256,), bytes(144))} if others else {}),
        },
    )


def test_every_type_is_read_as_the_format_has_it(tmp_path: Path) -> None:
    file = read_gguf(every_type(tmp_path / "a.gguf"))
    numbers = np.arange(6, dtype=np.float32)
    assert np.array_equal(file.contents("f32").read(), numbers.reshape(2, 3))
    assert np.array_equal(file.contents("f16").read(), numbers)
    assert np.array_equal(file.contents("bf16").read(), numbers)
    assert np.array_equal(file.contents("q8").read(), np.tile(0.5 * CODES, (2, 1)))
    expected = 2 * (np.concatenate([np.arange(16), np.arange(16)[::-1]]) - 8)
    assert np.array_equal(file.contents("q4").read(), expected)
    with pytest.raises(ImportModelError, match=r"other is of ggml's type 12; .*Q4_0"):
        file.contents("other")


def test_what_is_written_has_the_same_keys_and_types(tmp_path: Path) -> None:
    file = read_gguf(every_type(tmp_path / "a.gguf", others=False))
    write_gguf(tmp_path / "same.gguf", file, {})
    sound = (tmp_path / "a.gguf").read_bytes()
    assert (tmp_path / "same.gguf").read_bytes()[: len(sound)] == sound
    tight = 127 * np.random.default_rng(0).uniform(-1, 1, (2, 32)).astype(np.float32)
    new: dict[str, Contents] = {
        "f32": Held(np.full((2, 3), 7, np.float32)),
        "f16": Held(np.full(6, 0.5, np.float32)),
        "q8": Held(tight),
        "q4": Held(tight[0]),
    }
    write_gguf(tmp_path / "b.gguf", file, new)
    again = read_gguf(tmp_path / "b.gguf")
    for name, error in (("f32", 0), ("f16", 0), ("q8", 0.6), ("q4", 17)):
        found = again.contents(name).read()
        assert np.abs(found - new[name].read()).max() <= error, name
    assert np.array_equal(again.contents("bf16").read(), file.contents("bf16").read())


def test_rows_of_queries_and_keys_have_the_order_of_transformers(tmp_path: Path) -> None:
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
    changed = Held(found[query].read() + 10)
    write_gguf_tensors(path, LLAMA, {query: changed}, tmp_path / "b.gguf")
    assert np.array_equal(gguf_tensors(tmp_path / "b.gguf", LLAMA)[query].read(), changed.array)
    assert np.array_equal(
        read_gguf(tmp_path / "b.gguf").contents("blk.3.attn_q.weight").read(), rows + 10
    )


def test_another_family_is_refused(tmp_path: Path) -> None:
    path = every_type(tmp_path / "a.gguf")
    with pytest.raises(ImportModelError, match="says gemma"):
        gguf_tensors(path, SimpleNamespace(model_type="gemma"))


def test_damaged_files_are_errors_of_ours(tmp_path: Path) -> None:
    path = every_type(tmp_path / "a.gguf")
    sound, rng, refused = path.read_bytes(), random.Random(0), 0
    for turn in range(600):
        path.write_bytes(sound[: turn % len(sound)] if turn % 3 else mutate(sound, rng))
        try:
            file = read_gguf(path)
            for name in set(file.entries) - {"other"}:
                file.contents(name).read()
        except ImportModelError:
            refused += 1
    assert refused > 300
