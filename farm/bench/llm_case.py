"""The workload of `--suite=llm`: a decoder in a folder of transformers, on tokens drawn as words
are.

A name of `models/decoders.py` becomes a folder of random weights, written one tensor at a time, so
that a model of a billion parameters needs no memory here; a transformers folder is used unchanged.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pockengine.api import compile as compile_model
from pockengine.backends.artifact import Artifact
from pockengine.backends.stored import decoded
from pockengine.backends.weights import write_weights
from pockengine.compiled import Compiled
from pockengine.compiler.compile import find_scheme
from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.blocks import scales_name
from pockengine.compiler.ir.contents import Contents, Lazy, mapped
from pockengine.compiler.ir.types import F32, TensorType
from pockengine.compiler.optim import AdamW
from pockengine.compiler.sparse.lora import with_adapters
from pockengine.compiler.storage import Storage
from pockengine.errors import FarmError
from pockengine.models.decoders import SIZES, check_decoder, shapes_of
from pockengine.models.shards import SINGLE

if TYPE_CHECKING:
    from pockengine.models.causal_lm import CausalLM

KNOWN = tuple(SIZES)
"""Names of decoders whose weights are drawn."""
SEED, RATE, SPREAD = 0, 3e-4, 0.02
COMMON_RANK = 10.0
"""Zipf's law with Mandelbrot's constant: the k-th word is drawn in proportion to 1 / (k + this)."""


@dataclass(frozen=True)
class LmCase:
    """A decoder's graph on `tokens` [steps, rows, tokens], and the folder of its weights."""

    name: str
    folder: Path
    model: "CausalLM"
    graph: Graph
    tokens: np.ndarray

    @property
    def parameters(self) -> int:
        """Numbers in all weights."""
        return sum(param.value.type.size for param in self.graph.params.values())

    def trained(self, scheme: str) -> tuple[str, ...]:
        """Return the whole parameters that a scheme trains; FarmError for a share of channels."""
        _, resolved, adapters = with_adapters(self.graph, find_scheme(scheme, self.graph))
        shares = [name for name, channels in resolved.items() if channels is not None]
        if shares:
            raise FarmError(f"scheme {scheme} trains channels of {shares[0]}; PyTorch trains all")
        factors = {name for adapter in adapters for name in adapter.trained}
        return tuple(name for name in resolved if name not in factors)

    def compile(self, scheme: str, storage: Storage, bf16: bool, place: Path) -> Compiled:
        """Compile and build for this machine."""
        return compile_model(
            self.graph,
            None,
            optimizer=AdamW(),
            scheme=scheme,
            storage=storage,
            bf16=bf16,
            folder=place,
        )

    def decoded(self, artifact: Artifact, place: Path) -> Path:
        """Write a folder with an artifact's stored weights, dequantized."""
        stored, files = mapped(artifact.weights), self.model.names(self.graph)
        tensors: dict[str, Contents] = {}
        for name, file_name in files.items():
            order = self.graph.params[name].permutation
            back = None if order is None else tuple(int(i) for i in np.argsort(order))
            type_ = self.graph.params[name].value.type
            whole = type_ if back is None else type_.transposed(back)
            load = partial(_numbers, artifact, stored, name, back)
            tensors[file_name] = Lazy(whole, load, f"{name} of {artifact.folder}")
        place.mkdir(parents=True)
        self.model.module.config.save_pretrained(place)
        write_weights(tensors, place / SINGLE)
        return place


def _numbers(
    artifact: Artifact, stored: Mapping[str, Contents], name: str, back: tuple[int, ...] | None
) -> np.ndarray:
    parts = {key: stored[key].read() for key in (name, scales_name(name)) if key in stored}
    array = decoded(artifact.params, parts)[name]
    return np.ascontiguousarray(array if back is None else array.transpose(back))


def make_lm_case(model: str, shape: tuple[int, int], steps: int, place: Path) -> LmCase:
    """Build a case of `shape` (rows, tokens); `place` is the folder for the random weights of a
    listed name."""
    check_decoder(model)
    from pockengine.models.causal_lm import open_causal_lm

    folder = drawn_folder(model, place) if model in KNOWN else Path(model)
    opened = open_causal_lm(folder)
    if opened.longest is not None and shape[1] > opened.longest:
        raise FarmError(f"{model} knows positions of {opened.longest} tokens, not of {shape[1]}")
    tokens = drawn_tokens(opened.vocabulary, (steps, *shape))
    name = model if model in KNOWN else folder.name
    return LmCase(name, folder, opened, graph=opened.graph(*shape), tokens=tokens)


def drawn_folder(name: str, folder: Path) -> Path:
    """Write config.json and random weights of a listed decoder, unless they exist."""
    if (folder / SINGLE).is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    module = shapes_of(name)
    module.config.architectures = [type(module).__name__]
    module.config.save_pretrained(folder)
    tensors: dict[str, Contents] = {
        key: Lazy(
            TensorType(F32, tuple(parameter.shape)),
            partial(_drawn, key, tuple(parameter.shape)),
            key,
        )
        for key, parameter in module.named_parameters()
    }
    write_weights(tensors, folder / SINGLE)
    return folder


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a weight as transformers begin: norms at one, others normal."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    random = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    return random.standard_normal(shape, np.float32) * np.float32(SPREAD)


def drawn_tokens(vocabulary: int, shape: tuple[int, ...]) -> np.ndarray:
    """Draw tokens with a skewed distribution, which a model learns in a few steps."""
    weights = 1.0 / (np.arange(vocabulary) + COMMON_RANK)
    random = np.random.default_rng(SEED)
    return random.choice(vocabulary, shape, p=weights / weights.sum()).astype(np.int64)
