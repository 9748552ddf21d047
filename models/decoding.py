"""Graphs of a decoder that reads a text in chunks, with a cache of the keys and values before it.

A graph attends to the cache as it was before the chunk, and to the chunk itself, and writes the
chunk's keys and values at the end. So every read of the cache precedes its write, as in each entry
(ir/writes.py), and no cache is ever copied. The attention to the cache ends at the last position
that is in use.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pockengine.compiler.generation import DECODE, IDS, LAST, LOGITS, PREFILL, PREFILL_LONG, START
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.contents import Filled
from pockengine.compiler.ir.graph import Param, ParamKind
from pockengine.errors import ImportModelError, PockEngineError
from pockengine.frontends.torch.attend import ATTEND
from pockengine.frontends.torch.model import from_torch
from pockengine.frontends.torch.trace import settings
from pockengine.frontends.torch.unfilled import standing_in

CHUNK, LONG_CHUNK = 32, 128
"""Tokens of a prompt that `prefill` and `prefill_long` read per call. A chunk streams all weights:
with 110 M params, 16 tokens took 0.85 times as long as 32, and 128 2.8 times as long, on Zen 3.
"""
CHUNKS = {DECODE: 1, PREFILL: CHUNK, PREFILL_LONG: LONG_CHUNK}

_ATTENTION = "pockengine_cached"
_PART = "decoder"
_OTHER = frozenset({"s_aux", "sinks", "position_bias"})
"""Attention arguments that change the result in ways that `_attend` does not support."""

Rows = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each (1, tokens, heads, width), or other tensors of the cache and the chunk."""


def decoding_graphs(module: Any, positions: int, trained: Graph | None = None) -> dict[str, Graph]:
    """Import the entries of a decoder of transformers that generate, by name.

    The cache has at least `positions`, in whole chunks if the model has these positions; without
    room for a long chunk there is no PREFILL_LONG. Params share the contents of the training graph,
    or else of the module. ImportModelError if the decoder's state is not a cache of keys and
    values.
    """
    positions = _cache_positions(module, positions)
    try:
        with _cached_attention(module):
            shapes = _cache_shapes(module)
            graphs = {
                name: _graph(module, shapes, positions, tokens)
                for name, tokens in CHUNKS.items()
                if tokens <= positions
            }
    except PockEngineError:
        raise
    except Exception as error:  # a model's code may raise anything
        raise ImportModelError(
            f"{type(module).__name__} cannot be given a cache of keys and values: {error}"
        ) from error
    if trained is not None:
        for graph in graphs.values():
            _take_contents(graph, trained)
    return graphs


def _cache_positions(module: Any, positions: int) -> int:
    """Return the size of a cache: whole chunks of positions, but none that the model lacks.

    ImportModelError for a model that reads long texts in a way that no cache allows.
    """
    config = module.config
    chunked = getattr(config, "attention_chunk_size", None)
    limits = [("attention in chunks", chunked), *(("longrope", each) for each in _short(config))]
    for how, most in limits:
        if most is not None and positions > most:
            raise ImportModelError(
                f"{type(module).__name__} reads texts of more than {most} tokens otherwise ({how}),"
                f" and a cache of {positions} cannot change; use at most {most} tokens"
            )
    whole = -(-positions // CHUNK) * CHUNK
    longest = getattr(config, "max_position_embeddings", None), *(most for _, most in limits)
    return max(positions, min([whole, *(most for most in longest if most is not None)]))


def _short(config: Any) -> Iterator[int | None]:
    """Yield the lengths up to which longrope uses its factors for short texts."""
    own = getattr(config, "original_max_position_embeddings", None)
    table = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for rope in (table, *table.values()):  # of the model, or of each kind of layer
        if isinstance(rope, dict) and rope.get("rope_type", rope.get("type")) == "longrope":
            yield rope.get("original_max_position_embeddings", own)


class _Chunk:
    """transformers' Cache for one chunk: stores its keys and values, and returns only these."""

    is_compileable = False
    is_sliding = ()

    def __init__(self, cached: Mapping[str, torch.Tensor], start: torch.Tensor) -> None:
        self.cached, self.start = cached, start
        self.rows: dict[int, Rows] = {}

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> Rows:
        self.rows[layer_idx] = keys.transpose(1, 2), values.transpose(1, 2)
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        return 0  # positions are inputs

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("its layers keep another state than keys and values")


_chunks: list[_Chunk] = []
"""The chunk being traced; transformers' models do not pass all arguments on to attention."""


class _Decoder(torch.nn.Module):
    """A decoder with its caches as arguments; returns logits and the chunk's keys and values."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.add_module(_PART, model)

    def forward(
        self, input_ids: torch.Tensor, start: torch.Tensor, last: torch.Tensor, **cached: Any
    ) -> dict[str, torch.Tensor]:
        chunk = _Chunk(cached, start)
        logits = _called(self.get_submodule(_PART), chunk, input_ids, last)
        rows = {
            _name(layer, what): row
            for layer, both in sorted(chunk.rows.items())
            for what, row in zip(("keys", "values"), both, strict=True)
        }
        return {LOGITS: logits.reshape(-1), **rows}


def _called(model: Any, chunk: _Chunk, input_ids: torch.Tensor, last: torch.Tensor) -> Any:
    """Run a decoder on a chunk; return the logits after its token `last`."""
    taken = inspect.signature(model.forward).parameters
    cache = next(name for name in ("cache", "past_key_values") if name in taken)
    positions = (chunk.start + torch.arange(input_ids.shape[1]))[None]
    _chunks.append(chunk)
    try:
        return model(
            input_ids=input_ids,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=last,
            **{cache: chunk},
        ).logits
    finally:
        _chunks.pop()


def _name(layer: int, what: str) -> str:
    return f"cache_{layer}_{what}"


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **how: Any,
) -> tuple[torch.Tensor, None]:
    """Attend to the cache before `start` and to the chunk's own tokens up to each one.

    Query (1, heads, tokens, width).
    """
    other = [name for name in _OTHER if how.get(name) is not None]
    if other or attention_mask is not None:
        raise ImportModelError(
            f"{type(module).__name__} attends by {(other or ['a mask'])[0]}, which generation "
            "with a cache does not know"
        )
    chunk = _chunks[-1]
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    keys, values = (chunk.cached.get(_name(module.layer_idx, what)) for what in ("keys", "values"))
    if keys is None or values is None:  # only shapes are requested
        return query.new_zeros((*query.shape[:3], value.shape[-1])), None
    scaling, cap = how.get("scaling"), how.get("softcap")
    scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
    window = how["sliding_window"] if "sliding_window" in how else _window(module)
    seen = _seen(chunk.start, query.shape[1], keys.shape[1], window)
    if cap is not None:
        return _capped(query, (keys, key), (values, value), seen, scale=scale, cap=cap), None
    return _merged(query, (keys, key), (values, value), seen, scale=scale), None


def _window(module: Any) -> int | None:
    """Return the window of a layer of attention whose model puts it into a mask only."""
    config = module.config
    kinds = getattr(config, "layer_types", None)
    slides = kinds is None or kinds[module.layer_idx] == "sliding_attention"
    window: int | None = getattr(config, "sliding_window", None)
    return window if slides and getattr(config, "use_sliding_window", True) else None


def _merged(
    query: torch.Tensor, keys: Rows, values: Rows, seen: Rows, *, scale: float
) -> torch.Tensor:
    """Attend to cache and chunk apart, and merge the softmax over both from that over each.

    A row's maximum and sum are the weights of its two results (FlashAttention-2, arXiv 2307.08691).
    """
    cached, own = seen
    empty = ~cached.any(dim=-1, keepdim=True)  # such a row attends to any position, with weight 0
    first = torch.arange(cached.shape[-1]) == 0
    masks = cached | (empty & first), own
    (before, before_stats), (after, after_stats) = (
        ATTEND(query, key, value, mask[None, None], scale)
        for key, value, mask in zip(keys, values, masks, strict=True)
    )
    most, total = before_stats.split(1, dim=-1)
    most = torch.where(empty[None, :, None], -torch.inf, most)
    own_most, own_total = after_stats.split(1, dim=-1)
    largest = torch.maximum(most, own_most)
    total, own_total = total * (most - largest).exp(), own_total * (own_most - largest).exp()
    return (before * total + after * own_total) / (total + own_total)


def _seen(
    start: torch.Tensor, tokens: int, positions: int, window: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what each token sees: bool (tokens, positions) of the cache, (tokens, tokens)."""
    own = start + torch.arange(tokens)
    places = torch.arange(positions)
    masks = (places < start).expand(tokens, -1), own <= own[:, None]
    if window is None:
        return masks
    cached, chunk = masks
    return cached & (places > own[:, None] - window), chunk & (own > own[:, None] - window)


def _capped(
    query: torch.Tensor, keys: Rows, values: Rows, seen: Rows, *, scale: float, cap: float
) -> torch.Tensor:
    """Attend with scores capped by tanh; heads that share keys are rows of one product."""
    _, tokens, heads, width = query.shape
    before, own = (key.permute(0, 2, 3, 1) for key in keys)
    rows = query.transpose(1, 2).reshape(1, before.shape[1], -1, width)
    scores = torch.cat([rows @ before, rows @ own], dim=-1) * scale
    scores = (torch.tanh(scores / cap) * cap).reshape(1, heads, tokens, -1)
    scores = scores.masked_fill(~torch.cat(seen, dim=-1), torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).reshape(*rows.shape[:3], -1)
    parts = weights.split([values[0].shape[1], tokens], dim=-1)
    mixed = [part @ value.transpose(1, 2) for part, value in zip(parts, values, strict=True)]
    return (mixed[0] + mixed[1]).reshape(1, heads, tokens, -1).transpose(1, 2)


@contextmanager
def _cached_attention(module: Any) -> Iterator[None]:
    """Put a decoder into evaluation mode, with `_attend` as its attention."""
    from transformers import AttentionInterface

    AttentionInterface.register(_ATTENTION, _attend)
    before = getattr(module.config, "_attn_implementation", "eager")
    training = module.training
    module.set_attn_implementation(_ATTENTION)
    module.eval()
    try:
        yield
    finally:
        module.train(training)
        module.set_attn_implementation(before)


def _cache_shapes(module: Any) -> dict[str, tuple[int, int]]:
    """Return the heads and the width of each cache, by name, without computing anything."""
    decoder = _Decoder(module)
    with ExitStack() as stack:
        for one in (settings(decoder, {}), _restored(module), standing_in(module)):
            stack.enter_context(one)
        stack.enter_context(torch.no_grad())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        ids, zero = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        rows = decoder(ids, zero, zero)
    if len(rows) == 1:
        raise ImportModelError(f"{type(module).__name__} keeps no keys and values")
    return {name: (row.shape[2], row.shape[3]) for name, row in rows.items() if name != LOGITS}


@contextmanager
def _restored(module: Any) -> Iterator[None]:
    """Restore the plain attributes of a module's parts: a fake run may leave fake tensors there."""
    before = {part: dict(vars(part)) for part in module.modules()}
    try:
        yield
    finally:
        for part, attributes in before.items():
            vars(part).clear()
            vars(part).update(attributes)


def _graph(
    module: Any, shapes: Mapping[str, tuple[int, int]], positions: int, tokens: int
) -> Graph:
    """Import a decoder on chunks of a number of tokens."""
    zero = torch.zeros(1, dtype=torch.int64)
    examples = {IDS: torch.zeros(1, tokens, dtype=torch.int64), START: zero, LAST: zero.clone()}
    for name, (heads, width) in shapes.items():
        examples[name] = torch.zeros(1, positions, heads, width)
    graph = from_torch(_Decoder(module), examples)
    _strip(graph, f"{_PART}.")
    g = Builder(graph)
    start = graph.input(START)
    index = g.add(start, g.constant(torch.arange(tokens).numpy()))
    for name in shapes:
        cache = graph.input(name)
        graph.inputs.remove(cache)
        graph.params[name] = Param(
            cache, Filled(cache.type), None, trainable=False, kind=ParamKind.CACHE
        )
        g.emit("cache_update", cache, graph.outputs.pop(name), index, axis=1)
    return graph


def _strip(graph: Graph, prefix: str) -> None:
    """Remove a prefix from the names of params."""
    for param in graph.params.values():
        param.value.name = param.name.removeprefix(prefix)
    graph.params = {param.name: param for param in graph.params.values()}


def _take_contents(graph: Graph, trained: Graph) -> None:
    """Replace the contents of params by those of another graph's params of the same names."""
    for name, param in graph.params.items():
        if param.kind is ParamKind.CACHE:
            continue
        other = trained.params.get(name)
        if other is None or (other.value.type, other.permutation) != (
            param.value.type,
            param.permutation,
        ):
            raise ImportModelError(
                f"{graph.name} reads {name} otherwise than in training; generation needs it alike"
            )
        param.contents = other.contents
