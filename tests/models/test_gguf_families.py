"""Every decoder family with GGUF support: PyTorch's loss, and export back to GGUF."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pockengine.compiler.ir.contents import Contents, InMemory
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.ir.grids import Grid
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.errors import ImportModelError
from pockengine.models.causal_lm import open_causal_lm
from pockengine.models.gguf import read_gguf
from pockengine.models.gguf_families import ARCHITECTURES, KNOWN
from pockengine.models.gguf_forms import FORMS
from pockengine.models.gguf_layouts import laid_out
from pockengine.models.gguf_linear import joined_heads
from pockengine.models.gguf_names import gguf_tensors, write_gguf_tensors
from pockengine.tests.models.gguf_files import FAMILIES, MIXED, write_model

LENGTH = 8


def test_every_supported_family_is_tested() -> None:
    assert set(FAMILIES) == set(KNOWN)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in FAMILIES),
    ("falcon", {"new_decoder_architecture": False}),  # one key head for all queries, as in 7B
    ("falcon", {"num_ln_in_parallel_attn": 1, "tie_word_embeddings": False}),  # as in Falcon 2
    ("gemma4_text", MIXED),
    ("gemma4_text", {**MIXED, "attention_k_eq_v": True, "num_global_key_value_heads": 1}),
    ("qwen3_next", {"whole": True}),  # as of llama.cpp's first converter
]


@pytest.mark.parametrize(("kind", "changed"), VARIANTS)
def test_names_are_those_of_llama_cpp(kind: str, changed: dict[str, Any], tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    architecture = ARCHITECTURES.get(kind, kind)
    number = next(one for one, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    patterns = [gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[number]]
    known = {pattern.format(bid=block) for pattern in patterns for block in (0, 1)}
    write_model(kind, tmp_path, **changed)
    names = read_gguf(tmp_path / "tiny.gguf").entries
    layers = {re.sub(r"\.(weight|bias|scale)$", "", name) for name in names}
    assert layers <= known | {"output"}  # a tied head


@pytest.mark.parametrize(("kind", "changed"), VARIANTS)
def test_loss_matches_pytorch(kind: str, changed: dict[str, Any], tmp_path: Path) -> None:
    module = write_model(kind, tmp_path, **changed)
    assert module.config.model_type == kind
    ids = torch.randint(5, 60, (2, LENGTH))
    positions = torch.arange(LENGTH).repeat(2, 1)
    batch = {"input_ids": ids, "labels": ids, "position_ids": positions}
    with torch.no_grad():
        expected = float(module(**batch, use_cache=False).loss)

    graph = open_causal_lm(tmp_path).graph(2, LENGTH)

    feed = {value.name: batch[value.name].numpy() for value in graph.inputs}
    params = {name: param.data for name, param in graph.params.items()}
    assert float(run(graph, feed, params)["loss"]) == pytest.approx(expected, rel=1e-5)


def test_numbers_in_keys_are_read_and_written(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    module = write_model("apertus", tmp_path)
    source, back = tmp_path / "tiny.gguf", tmp_path / "back.gguf"
    name = "model.layers.1.mlp.act_fn.alpha_n"
    found = gguf_tensors(source, module.config)[name].read()
    np.testing.assert_array_equal(found, module.state_dict()[name].numpy())

    write_gguf_tensors(source, module.config, {name: InMemory(found + 2)}, back)

    fields = [gguf.GGUFReader(file).fields for file in (source, back)]
    keys = gguf.Keys.xIELU
    old, new = (one[keys.ALPHA_N].contents() for one in fields)
    assert new == pytest.approx([old[0], old[1] + 2])
    for key in (keys.ALPHA_P, keys.BETA, keys.EPS):
        assert fields[0][key].contents() == fields[1][key].contents()


def test_unknown_tensors_are_refused_and_rotations_skipped(tmp_path: Path) -> None:
    module = write_model("qwen3", tmp_path)
    file = tmp_path / "tiny.gguf"
    whole = file.read_bytes()
    norm, known = b"blk.1.attn_q_norm.weight", set(gguf_tensors(file, module.config))
    file.write_bytes(whole.replace(norm, b"blk.1.nextn.shared.weight"[: len(norm)]))
    assert known - set(gguf_tensors(file, module.config)) == {
        "model.layers.1.self_attn.q_norm.weight"
    }
    file.write_bytes(whole.replace(norm, b"blk.1.attn_q_nor2.weight"))
    with pytest.raises(ImportModelError, match=r"gguf: blk\.1\.attn_q_nor2\.weight is no weight"):
        gguf_tensors(file, module.config)


@pytest.mark.parametrize("width", [32, 16])
def test_columns_of_whole_blocks_keep_their_scales(width: int) -> None:
    heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
    config = SimpleNamespace(model_type="qwen3_5_text", **heads)
    codes = np.arange(3 * 4 * width, dtype=np.int8).reshape(3, -1)
    scales = np.arange(1, 1 + codes.size // 32, dtype=np.float32).reshape(3, -1)
    stored = grid(codes, scales)

    found = laid_out(stored, "model.layers.0.linear_attn.out_proj.weight", config, back=True)

    heads_of = np.split(stored.read(), 4, axis=1)
    np.testing.assert_array_equal(found.read(), np.hstack([heads_of[n] for n in (0, 2, 1, 3)]))
    assert isinstance(found, Grid) == (width == 32)


HEADS = {"linear_num_key_heads": 2, "linear_key_head_dim": 1}
VALUES = {"linear_num_value_heads": 4, "linear_value_head_dim": 1}


def test_joined_heads_keep_their_scales() -> None:
    config = SimpleNamespace(model_type="qwen3_next", **HEADS, **VALUES)
    codes = np.arange(12 * 32, dtype=np.int8).reshape(12, 32)
    scales = np.arange(1, 13, dtype=np.float32)[:, None]
    parts = (("qkv", slice(8)), ("z", slice(8, None)))
    weights: dict[str, Contents] = {
        f"model.layers.0.linear_attn.in_proj_{name}.weight": grid(codes[rows], scales[rows])
        for name, rows in parts
    }

    (found,) = joined_heads(weights, config, "tiny.gguf").values()

    assert isinstance(found, Grid)
    assert found.bits == 8
    by_head = [0, 2, 4, 5, 8, 9, 1, 3, 6, 7, 10, 11]  # query, key, two values, two gates
    np.testing.assert_array_equal(found.read(), (codes * scales)[by_head])
    config.linear_num_value_heads = 6
    with pytest.raises(ImportModelError, match="instead of 10 and 6 rows, which config"):
        joined_heads(weights, config, "tiny.gguf")


def grid(codes: np.ndarray, scales: np.ndarray) -> Grid:
    return Grid(TensorType(F32, codes.shape), 1, lambda: (codes, scales), 8)


@pytest.mark.parametrize(("kind", "changed"), VARIANTS)
def test_weights_round_trip(kind: str, changed: dict[str, Any], tmp_path: Path) -> None:
    module = write_model(kind, tmp_path, **changed)
    source, back = tmp_path / "tiny.gguf", tmp_path / "back.gguf"
    found = gguf_tensors(source, module.config)
    new: dict[str, Contents] = {n: InMemory(held.read() + 1) for n, held in found.items()}
    write_gguf_tensors(source, module.config, new, back)

    before, after = read_gguf(source), read_gguf(back)
    assert all(after.form(name) is FORMS[0] for name in before.entries)
    for name in before.entries:  # a tied head too
        old = before.contents(name).read()
        expected = old * np.e if name.endswith("ssm_a") else old + 1  # -exp(A_log + 1)
        assert np.allclose(after.contents(name).read(), expected, atol=1e-6), name
