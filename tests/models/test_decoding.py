"""Decoders with a KV cache generate the same tokens as transformers."""

import ctypes
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from pockengine.backends.artifact import write_artifact
from pockengine.backends.generation import Generation
from pockengine.backends.placement import anchor_op, kernel_nodes
from pockengine.backends.registry import backend_for, open_session
from pockengine.backends.session import Session
from pockengine.compiler.compile import compile_entries
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.blocks import scales_name
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.forward.store_weights import StoreWeights
from pockengine.compiler.program import Program
from pockengine.devices import find_device
from pockengine.errors import ImportModelError, RuntimeFailure
from pockengine.models.decoding import CHUNK, LONG_CHUNK, decoding_graphs
from pockengine.options import CompileOptions
from pockengine.tests.models.families import FURTHER, MIXTURE
from pockengine.tests.zoo.zoo_language import GPT2, GROUPED, SMALL, build

POSITIONS = 2 * CHUNK
WIDE = {"max_position_embeddings": POSITIONS, "initializer_range": 0.3}
"""Settings; with the default initializer range, a random decoder soon repeats one token."""
LLAMA = {**GROUPED, **WIDE}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "LlamaForCausalLM": ("Llama", LLAMA),
    "Qwen3ForCausalLM": ("Qwen3", LLAMA),
    "Gemma2ForCausalLM": ("Gemma2", {**LLAMA, "sliding_window": 8}),  # with logit soft-capping
    "Gemma3ForCausalLM": ("Gemma3Text", {**LLAMA, "sliding_window": 8}),
    "GPT2LMHeadModel": ("GPT2", {**GPT2, **WIDE}),  # learned positions
}
TEXT = 28
FACTORS = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
ORIGINAL = {"original_max_position_embeddings": CHUNK}
ORIGINAL_EIGHT = {"original_max_position_embeddings": 8}
LONG_ROPE = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0, **FACTORS}
EXPERTS = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
SLIDING = {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 8}
LISTED: dict[str, tuple[str, dict[str, Any]]] = {
    "Mixtral": ("Mixtral", MIXTURE),
    "Qwen3-MoE": ("Qwen3Moe", EXPERTS),
    "Qwen2-MoE with a window": ("Qwen2Moe", {**EXPERTS, **SLIDING}),
    "Phi-3.5-MoE with a window": ("Phimoe", {**MIXTURE, "sliding_window": 8}),
    "GPT-NeoX": ("GPTNeoX", {}),
    "Granite-MoE": ("GraniteMoe", MIXTURE),
    "ERNIE 4.5 MoE": (
        "Ernie4_5_Moe",
        {"moe_num_experts": 2, "moe_k": 1, "moe_intermediate_size": 16},
    ),
    "Phi-3 with longrope": ("Phi3", {"rope_parameters": LONG_ROPE, **ORIGINAL}),
}
UNCACHED = ("Bloom", "DeepseekV3", "Falcon", "MiniMax", "Mpt")
"""Families with positions in their scores, latent attention, or states of their own."""
PROMPT = np.random.default_rng(0).integers(5, 60, POSITIONS).tolist()


def built(name: str, **settings: Any) -> Any:
    """Build a small decoder of a family."""
    kind, usual = FAMILIES[name]
    torch.manual_seed(0)
    return build(kind, name, **usual | settings)


def opened(module: Any, folder: Path, positions: int = POSITIONS) -> Session:
    """Compile the generation entries and open a session."""
    return compiled(decoding_graphs(module, positions), folder)[1]


def compiled(graphs: Mapping[str, Graph], folder: Path) -> tuple[Program, Session]:
    """Compile generation entries and open a session."""
    backend = backend_for(find_device("host"), CompileOptions())
    program = compile_entries("decoder", graphs, target=backend.target(), check=True)
    return program, open_session(write_artifact(program, backend, folder), threads=2)


def expected(module: Any, prompt: list[int], limit: int) -> list[int]:
    """Return the tokens that transformers generates."""
    ids = torch.tensor([prompt])
    with torch.no_grad():
        whole = module.eval().generate(
            ids, do_sample=False, max_new_tokens=limit, eos_token_id=None, pad_token_id=0
        )
    tokens: list[int] = whole[0, len(prompt) :].tolist()
    return tokens


@pytest.fixture(scope="module")
def module() -> Any:
    return built("LlamaForCausalLM")


@pytest.fixture(scope="module")
def session(module: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with opened(module, tmp_path_factory.mktemp("llama") / "artifact") as session:
        yield session


@pytest.mark.parametrize("name", FAMILIES)
def test_tokens_match_transformers(name: str, tmp_path: Path) -> None:
    module = built(name)
    with opened(module, tmp_path / "artifact") as session:
        assert session.positions == POSITIONS
        for count in (1, CHUNK // 2, CHUNK + 3):
            limit = POSITIONS - CHUNK - 3
            found = session.generate(PROMPT[:count], Generation(limit))
            assert found == expected(module, PROMPT[:count], limit)


ODD = CHUNK + 18
ENDING: dict[str, tuple[str, str, dict[str, Any]]] = {
    "learned positions": ("GPT2", "GPT2LMHeadModel", GPT2),
    "longrope": (
        "Phi3",
        "Phi3ForCausalLM",
        {**GROUPED, "rope_parameters": LONG_ROPE, "original_max_position_embeddings": ODD},
    ),
}
"""Models that have fewer positions than whole chunks, or read more otherwise."""


@pytest.mark.parametrize("kind", ENDING)
def test_caches_end_at_the_last_position(kind: str, tmp_path: Path) -> None:
    *names, settings = ENDING[kind]
    last = {"max_position_embeddings": ODD} if kind == "learned positions" else {}
    torch.manual_seed(0)
    module = build(*names, **{**settings, **WIDE, **last})
    with opened(module, tmp_path / "artifact", ODD) as session:
        assert session.positions == ODD
        for count, cached in ((CHUNK + 8, 0), (ODD - 4, CHUNK - 14), (ODD - 3, CHUNK)):
            found = session.generate(PROMPT[:count], Generation(99), cached=cached)
            assert found == expected(module, PROMPT[:count], ODD - count + 1)


@pytest.mark.parametrize("name", LISTED)
def test_logits_match_transformers(name: str) -> None:
    check_logits(*LISTED[name])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", sorted(set(FURTHER) - set(UNCACHED)))
def test_logits_of_further_families_match_transformers(kind: str) -> None:
    check_logits(kind, FURTHER[kind])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", UNCACHED)
def test_other_caches_are_refused(kind: str) -> None:
    model = build(kind, f"{kind}ForCausalLM", **SMALL | FURTHER[kind])
    with pytest.raises(ImportModelError, match=r"cannot be (given a cache|imported)"):
        decoding_graphs(model, CHUNK)


def check_logits(kind: str, settings: dict[str, Any]) -> None:
    """Its cache is of one chunk; the last token's logits depend on all masks and frequencies."""
    torch.manual_seed(0)
    model = build(kind, f"{kind}ForCausalLM", **LLAMA | settings).eval()
    ids = np.array([PROMPT[:TEXT]])
    with torch.no_grad():
        expected = model(input_ids=torch.from_numpy(ids)).logits[0, -1].numpy()
    graph = decoding_graphs(model, CHUNK)["prefill"]
    padded = np.pad(ids, ((0, 0), (0, CHUNK - TEXT)))
    feed = {"input_ids": padded, "start": np.zeros(1, np.int64), "last": np.full(1, TEXT - 1)}
    logits = run(graph, feed, {name: param.data for name, param in graph.params.items()})["logits"]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    assert not any(
        isinstance(x, FakeTensor) for part in model.modules() for x in vars(part).values()
    )


@pytest.mark.parametrize(
    ("kind", "settings", "how"),
    [
        (
            "Phi3",
            {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 30},
            "30 tokens otherwise (longrope)",
        ),
        ("Llama", {"attention_chunk_size": 8}, "8 tokens otherwise (attention in chunks)"),
        (
            "Gemma3Text",
            {"rope_parameters": {"full_attention": {**LONG_ROPE, **ORIGINAL_EIGHT}}},
            "8 tokens otherwise (longrope)",
        ),
    ],
)
def test_longer_caches_than_the_model_reads_alike_are_refused(
    kind: str, settings: dict[str, Any], how: str
) -> None:
    model = build(kind, f"{kind.removesuffix('Text')}ForCausalLM", **LLAMA | settings)
    with pytest.raises(ImportModelError, match=re.escape(f"reads texts of more than {how}")):
        decoding_graphs(model, CHUNK)


@pytest.mark.parametrize("name", ["Gemma3ForCausalLM", "Gemma2ForCausalLM"])
def test_long_chunks_match_transformers(name: str, tmp_path: Path) -> None:
    module = built(name, max_position_embeddings=2 * LONG_CHUNK)
    prompt = np.random.default_rng(1).integers(5, 60, LONG_CHUNK + 70).tolist()
    with opened(module, tmp_path / "artifact", 2 * LONG_CHUNK) as session:
        for count in (LONG_CHUNK // 2 + 1, len(prompt), len(prompt) - 6):
            found = session.generate(prompt[:count], Generation(8))
            assert found == expected(module, prompt[:count], 8)


STORED = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 130}
"""Sizes at which the weights are large enough to store in few bits: of the layers and the head."""


def test_weights_in_few_bits_give_the_tokens_of_what_they_decode_to(tmp_path: Path) -> None:
    module = built("LlamaForCausalLM", **STORED, tie_word_embeddings=True)
    graphs = decoding_graphs(module, POSITIONS)
    for graph in graphs.values():
        caches = frozenset(name for name in graph.params if name.startswith("cache_"))
        StoreWeights("int4", caches).run(graph)
    params = graphs["decode"].params
    stored = {name: param.blocks for name, param in params.items() if param.blocks is not None}
    for name, blocks in stored.items():
        decoded = blocks.decode(params[name].data, params[scales_name(name)].data)
        turned = decoded if params[name].permutation is None else decoded.T.copy()
        module.get_parameter(name).data = torch.from_numpy(turned)
    program, session = compiled(graphs, tmp_path / "artifact")
    with session:
        found = session.generate(PROMPT[: CHUNK + 3], Generation(12))
    assert found == expected(module, PROMPT[: CHUNK + 3], 12)
    for entry in ("decode", "prefill"):
        nodes = kernel_nodes(program.entries[entry])
        products = [node for node in nodes if anchor_op(node) == "matmul"]
        bodies = [node.attrs["body"] for node in products if node.op == "fusion"]
        decoding = [body for body in bodies if "decode_blocks" in {each.op for each in body.nodes}]
        assert len(decoding) == len(stored) == 7


def test_texts_end_at_stop_tokens_and_limits(module: Any, session: Session) -> None:
    tokens = expected(module, PROMPT[:5], 12)
    found: list[int] = []

    def until_four(token: int) -> bool:
        found.append(token)
        return len(found) < 4

    end = next(token for place, token in enumerate(tokens) if token not in tokens[:place][:3])
    ended = session.generate(PROMPT[:5], Generation(12, ends=(end, 63)))
    assert ended == tokens[: tokens.index(end)]
    assert session.generate(PROMPT[:5], Generation(12), notify=until_four) == tokens[:4] == found
    assert session.generate(PROMPT[:5], Generation(0)) == []
    # All positions, plus a last token that is predicted but never read.
    assert len(session.generate(PROMPT[:60], Generation(99))) == POSITIONS - 60 + 1
    assert session.generate(PROMPT, Generation(9)) == expected(module, PROMPT, 1)


def test_generation_continues_from_the_cache(module: Any, session: Session) -> None:
    first = session.generate(PROMPT[:7], Generation(6))
    turn = [*PROMPT[:7], *first, *PROMPT[7:30]]
    again = session.generate(turn, Generation(20), cached=7 + len(first) - 1)
    assert again == expected(module, turn, 20)


def test_errors_name_invalid_requests(session: Session) -> None:
    for prompt, cached, how, fault in (
        ([], 0, Generation(4), "a prompt of 0 tokens"),
        ([5, 6], 2, Generation(4), "the last token of a prompt is never cached"),
        ([5] * (POSITIONS + 1), 0, Generation(4), f"has positions for {POSITIONS}"),
        ([5, 999], 0, Generation(4), "input_ids holds 999 .*entry prefill takes"),
        ([5] * 62 + [999], 50, Generation(4), "input_ids holds 999 .*entry decode takes"),
        ([5], 0, Generation(4, temperature=-1), "a temperature is at least 0, not -1$"),
        ([5], 0, Generation(4, temperature=1, top_p=0), "^top_p is above 0 and at most 1, not 0"),
    ):
        with pytest.raises(RuntimeFailure, match=fault):
            session.generate(prompt, how, cached=cached)
    with pytest.raises(KeyError):
        session.generate(
            [5], Generation(4), notify=lambda token: bool(os.environ["POCKENGINE_ABSENT"])
        )
    with pytest.raises(RuntimeFailure, match="limit must be at least 0"):
        Generation(-1)


def test_samples_follow_the_nucleus_probabilities(session: Session) -> None:
    logits = np.random.default_rng(0).standard_normal(40).astype(np.float32) * 2
    draw: Callable[..., int] = session._library.pe_draw  # type: ignore[attr-defined]
    draw.restype = ctypes.c_int64  # type: ignore[attr-defined]

    def drawn(temperature: float, top_p: float, number: int) -> int:
        sampling = (ctypes.c_float * 3)(temperature, top_p, 0)  # seed 0
        copy = logits.copy()
        address = ctypes.c_void_p(copy.ctypes.data)
        return draw(address, ctypes.c_int64(40), ctypes.byref(sampling), ctypes.c_uint32(number))

    for temperature, top_p in ((1.0, 1.0), (0.5, 0.9), (2.0, 0.3)):
        shares = np.exp(logits.astype(np.float64) / temperature)
        shares /= shares.sum()
        order = np.argsort(-shares)
        inside = order[: int(np.searchsorted(np.cumsum(shares[order]), top_p)) + 1]
        nucleus = np.zeros(40)
        nucleus[inside] = shares[inside] / shares[inside].sum()
        count = 4000
        found = np.bincount([drawn(temperature, top_p, n) for n in range(count)], minlength=40)
        assert not found[nucleus == 0].any()
        deviation = np.sqrt(count * nucleus * (1 - nucleus)) + 1
        assert (np.abs(found - count * nucleus) < 4.5 * deviation).all()
    assert drawn(0.0, 1.0, 7) == logits.argmax() == drawn(1.0, 1e-6, 7)
    logits[3] = np.nan
    assert drawn(0.0, 1.0, 0) == -1


def test_cache_is_not_saved_to_files(session: Session, tmp_path: Path) -> None:
    assert not [name for name in session.artifact.params if name.startswith("cache")]
    session.save(tmp_path / "whole", whole=True)
    session.load(tmp_path / "whole")
    assert b"cache_0_keys" not in (tmp_path / "whole").read_bytes()


def test_error_names_a_state_that_is_not_a_key_cache() -> None:
    module = build("Mamba", "MambaForCausalLM", vocab_size=64, hidden_size=32, num_hidden_layers=1)
    with pytest.raises(ImportModelError, match="MambaForCausalLM"):
        decoding_graphs(module, POSITIONS)
