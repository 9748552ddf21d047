"""Decoders of transformers from a folder, without their weights in memory.

config.json names the class and its sizes. The weights are mapped from their files and read on
demand. No code of the folder runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from pockengine.compiler.ir import Graph
from pockengine.compiler.ir.attach import attach
from pockengine.compiler.ir.contents import Contents
from pockengine.errors import GraphError, ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.models.experts import experts_of, stacked
from pockengine.models.hugging_face import DECODERS, decoder_class, model_class
from pockengine.models.packed import remark
from pockengine.models.shards import shards_of
from pockengine.models.unfilled import unfilled

ELSEWHERE = (
    (r"\.mlp\.", ".block_sparse_moe."),
    (r"^model\.", "model.language_model."),
    (r"^", "language_model."),
)
"""Parts of names that differ in files: Mixtral's mixtures, and text models of larger ones."""
INPUTS = ("input_ids", "labels", "position_ids")
"""A position of 0 starts a new text, which does not attend to the previous one."""


@dataclass(frozen=True)
class CausalLM:
    """A decoder with shapes only, and its weights by the files' names, file by file."""

    folder: Path
    module: Any
    shards: Mapping[str, Mapping[str, Contents]]

    @property
    def remark(self) -> str | None:
        """A line on the format of quantized weights, if the folder has any."""
        return remark(self.shards, self.module.config)

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary."""
        return int(self.module.get_input_embeddings().weight.shape[0])

    @property
    def longest(self) -> int | None:
        """Maximum number of positions, if the configuration has it."""
        length = getattr(self.module.config, "max_position_embeddings", None)
        return None if length is None else int(length)

    def graph(self, batch: int, length: int) -> Graph:
        """Import the model with its own loss for texts packed into rows, and set its weights.

        ImportModelError names a weight that is missing from all files or has another shape.
        """
        graph = shapes_graph(self.module, batch, length)
        names, weights = self.names(graph), self.file_weights()
        weights.update(stacked(weights))
        try:
            attach(graph, {name: weights[file_name] for name, file_name in names.items()})
        except GraphError as error:
            raise ImportModelError(
                f"{self.folder}: {error}; config.json and the weights must be of one model"
            ) from error
        return graph

    def file_weights(self) -> dict[str, Contents]:
        """Return the weights of all files."""
        return {
            name: tensor for tensors in self.shards.values() for name, tensor in tensors.items()
        }

    def names(self, graph: Graph) -> dict[str, str]:
        """Return the files' name of each param of the graph, or of the stack of its experts.

        A file of the model without its head omits the first part of the names.
        """
        available = {*self.file_weights(), *experts_of(self.file_weights())}
        prefix = f"{getattr(self.module, 'base_model_prefix', '')}."
        found, lacking = {}, []
        for name, param in graph.params.items():
            others = (re.sub(part, theirs, name, count=1) for part, theirs in ELSEWHERE)
            known = [n for n in (name, name.removeprefix(prefix), *others) if n in available]
            if known:
                found[name] = known[0]
            elif not param.contents.known:
                lacking.append(name)
        if lacking:
            raise ImportModelError(
                f"{self.folder} holds no {', '.join(lacking[:3])} ({len(lacking)} of "
                f"{len(graph.params)} weights are missing); its files have "
                f"{', '.join(sorted(available)[:3])}, ...: copy the whole folder"
            )
        return found


def open_causal_lm(folder: Path) -> CausalLM:
    """Open a folder; ImportModelError if it has no decoder, or is damaged."""
    module = decoder_of(folder)
    return CausalLM(folder, module, shards_of(folder, module.config))


def decoder_of(folder: Path) -> Any:
    """Build config.json's decoder with shapes only; its weights need not exist.

    For a multimodal model, build its text model.
    """
    kind = decoder_class(folder)
    if not kind.endswith(DECODERS):
        raise ImportModelError(
            f"{folder} is a {kind}, which predicts no next token; give a folder of a "
            f"...{' or ...'.join(DECODERS)}"
        )
    try:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if kind != model_class(folder):
            config = _of_text(config)
        config.dtype = torch.float32
        module = unfilled(getattr(transformers, kind), config)
    except Exception as error:  # transformers raises anything for a damaged configuration
        text = next((line for line in str(error).splitlines() if line.strip()), repr(error))
        raise ImportModelError(f"{folder} is no {kind} as config.json has it: {text}") from error
    module.name_or_path = str(folder)
    return module


def _of_text(config: Any) -> Any:
    """Return the text model's configuration, with the file format of the whole model."""
    text = config.get_text_config()
    text.tie_word_embeddings = getattr(config, "tie_word_embeddings", text.tie_word_embeddings)
    if hasattr(config, "quantization_config"):
        text.quantization_config = config.quantization_config
    return text


def shapes_graph(module: Any, batch: int, length: int) -> Graph:
    """Import a decoder on `batch` rows of `length` tokens; `meta` tensors remain shapes."""
    example = torch.zeros(batch, length, dtype=torch.int64)
    return from_torch(module, dict.fromkeys(INPUTS, example))
