"""Graphs of a decoder that reads a text in chunks, with a cache of the keys and values before it.

A graph attends to the cache as it was before the chunk, and to the chunk itself, and writes the
chunk's keys and values at the end. So every read of the cache precedes its write, as in each entry
(ir/writes.py), and no cache is ever copied.
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pockengine.compiler.generation import DECODE, IDS, LAST, LOGITS, PREFILL, START
from pockengine.compiler.ir import Builder, Graph
from pockengine.compiler.ir.contents import Filled
from pockengine.compiler.ir.graph import Param, ParamKind
from pockengine.errors import ImportModelError, PockEngineError
from pockengine.frontends.torch.model import from_torch
from pockengine.frontends.torch.unfilled import standing_in

CHUNK = 16
"""Tokens of a prompt that `prefill` reads per call."""

_ATTENTION = "pockengine_cached"
_PART = "decoder"
_OTHER = frozenset({"s_aux", "sinks", "position_bias"})
"""Attention arguments that change the result in ways that `_attend` does not support."""

Rows = tuple[torch.Tensor, torch.Tensor]
"""Keys and values, each (1, heads, tokens, width)."""


def decoding_graphs(module: Any, positions: int, trained: Graph | None = None) -> dict[str, Graph]:
    """Import the entries DECODE and PREFILL of a decoder of transformers, by name.

    The cache has at least `positions`. Params share the contents of the training graph, or else of
    the module. ImportModelError if the decoder's state is not a cache of keys and values.
    """
    positions = -(-positions // CHUNK) * CHUNK
    try:
        with _cached_attention(module):
            shapes = _cache_shapes(module)
            graphs = {
                name: _graph(module, shapes, positions, tokens)
                for name, tokens in ((DECODE, 1), (PREFILL, CHUNK))
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
        self.rows[layer_idx] = keys, values
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

    Query (1, heads, tokens, width); heads that share keys are rows of one product.
    """
    other = [name for name in _OTHER if how.get(name) is not None]
    if other or attention_mask is not None:
        raise ImportModelError(
            f"{type(module).__name__} attends by {(other or ['a mask'])[0]}, which generation "
            "with a cache does not know"
        )
    chunk = _chunks[-1]
    _, heads, tokens, width = query.shape
    keys, values = (chunk.cached.get(_name(module.layer_idx, what)) for what in ("keys", "values"))
    if keys is None or values is None:  # only shapes are requested
        return query.new_zeros((1, tokens, heads, value.shape[-1])), None
    shared = (1, key.shape[1], -1, width)
    rows = query.reshape(shared)
    scores = torch.cat([rows @ keys.transpose(2, 3), rows @ key.transpose(2, 3)], dim=-1)
    scaling = how.get("scaling")
    scores = scores * (width**-0.5 if scaling is None else scaling)
    if (cap := how.get("softcap")) is not None:
        scores = torch.tanh(scores / cap) * cap
    mask = _attention_mask(chunk.start, tokens, keys.shape[2], how.get("sliding_window"))
    scores = scores.reshape(1, heads, tokens, -1)
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1).reshape(1, key.shape[1], -1, scores.shape[-1])
    before, own = weights[..., : keys.shape[2]], weights[..., keys.shape[2] :]
    result = before @ values + own @ value
    return result.reshape(1, heads, tokens, -1).transpose(1, 2).contiguous(), None


def _attention_mask(
    start: torch.Tensor, tokens: int, positions: int, window: int | None
) -> torch.Tensor:
    """Return the mask over cached and own positions: bool (tokens, positions + tokens)."""
    own = start + torch.arange(tokens)
    cached = torch.arange(positions)
    at = torch.cat([cached, own])[None, :]
    mask = at <= own[:, None]
    if window is not None:
        mask = mask & (at > own[:, None] - window)
    written = torch.cat([cached < start, torch.ones(tokens, dtype=torch.bool)])
    return mask & written[None, :]


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
    with standing_in(module), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        ids, zero = torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
        rows = _Decoder(module)(ids, zero, zero)
    if len(rows) == 1:
        raise ImportModelError(f"{type(module).__name__} keeps no keys and values")
    return {name: (row.shape[1], row.shape[3]) for name, row in rows.items() if name != LOGITS}


def _graph(
    module: Any, shapes: Mapping[str, tuple[int, int]], positions: int, tokens: int
) -> Graph:
    """Import a decoder on chunks of a number of tokens."""
    zero = torch.zeros(1, dtype=torch.int64)
    examples = {IDS: torch.zeros(1, tokens, dtype=torch.int64), START: zero, LAST: zero.clone()}
    for name, (heads, width) in shapes.items():
        examples[name] = torch.zeros(1, heads, positions, width)
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
        g.emit("cache_update", cache, graph.outputs.pop(name), index, axis=2)
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
