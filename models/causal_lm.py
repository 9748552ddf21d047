"""Decoders of transformers from a folder, without their weights in memory.

config.json names the class and its sizes. The weights are mapped from their files and read on
demand. No code of the folder runs.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
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
    (r"\.mlp\.router\.", ".block_sparse_moe.gate."),
    (r"\.router\.weight$", ".router.layer.weight"),
    (r"\.experts\.gate_up_proj$", ".input_linear.weight"),
    (r"\.experts\.down_proj$", ".output_linear.weight"),
    (r"\.gate\.moe_statics\.", ".moe_statics."),
    (r"^lm_head\.", "embed_out."),
    (r"^model\.", "model.language_model."),
    (r"^", "language_model."),
)
"""Parts of names that differ in files: of mixtures (Mixtral, Phi-3.5-MoE, Granite, ERNIE), of
GPT-NeoX's head, and of text models in larger ones."""
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}
"""Kinds of layers that attend within a text only."""
MIXING = ("bloom", "gpt_oss", "minimax", "mpt", "opt")
"""Families that attend to other texts of a row, whatever the positions."""
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

    @property
    def separates_texts(self) -> bool:
        """Whether texts that share a row do not see each other.

        Layers of convolution or linear attention ignore where a text begins; so do some models'
        masks and scores, in transformers as here.
        """
        config = self.module.config
        kinds = set(getattr(config, "layer_types", None) or ())
        return config.model_type not in MIXING and kinds <= ATTENTION

    def graph(self, batch: int, length: int) -> Graph:
        """Import the model with its own loss for texts packed into rows, and set its weights.

        ImportModelError names a weight that is missing from all files or has another shape.
        """
        graph = shapes_graph(self.module, batch, length)
        names, weights = self.names(graph), self.file_weights()
        try:
            weights.update(stacked(weights))
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
        embedding, head = _ends(self.module)
        found, lacking = {}, []
        for name, param in graph.params.items():
            known = _name_in(available, self.module, name)
            if known is None and name == embedding:  # tied to a head that the file has alone
                known = _name_in(available, self.module, head)
            if known is not None:
                found[name] = known
            elif not param.contents.known:
                lacking.append(name)
        if lacking:
            raise ImportModelError(
                f"{self.folder} holds no {', '.join(lacking[:3])} ({len(lacking)} of "
                f"{len(graph.params)} weights are missing); its files have "
                f"{', '.join(sorted(available)[:3])}, ...: files are missing, or this family "
                "names its weights in a way that is not known here"
            )
        return found


def open_causal_lm(folder: Path) -> CausalLM:
    """Open a folder; ImportModelError if it has no decoder, or is damaged."""
    module = decoder_of(folder)
    opened = CausalLM(folder, module, shards_of(folder, module.config))
    return (
        replace(opened, module=decoder_of(folder, tied=False)) if _has_own_head(opened) else opened
    )


def _has_own_head(opened: CausalLM) -> bool:
    """Whether the files hold another head than the embedding that config.json ties it to.

    Then transformers does not tie them either.
    """
    weights = opened.file_weights()
    names = [_name_in(weights, opened.module, name) for name in _ends(opened.module)]
    if not getattr(opened.module.config, "tie_word_embeddings", False) or None in names:
        return False
    embedding, head = (weights[str(name)] for name in names)
    return head.type != embedding.type or not np.array_equal(head.read(), embedding.read())


def _ends(module: Any) -> tuple[str, str]:
    """Return the names of the weights of a decoder's embedding and head."""
    ends = module.get_input_embeddings(), module.get_output_embeddings()
    names = {each: f"{name}.weight" for name, each in module.named_modules()}
    return names.get(ends[0], ""), names.get(ends[1], "")


def _name_in(available: Collection[str], module: Any, name: str) -> str | None:
    """Return the files' name of a parameter of a decoder; None if they lack it."""
    prefix = f"{getattr(module, 'base_model_prefix', '')}."
    others = (re.sub(part, theirs, name, count=1) for part, theirs in ELSEWHERE)
    return next((n for n in (name, name.removeprefix(prefix), *others) if n in available), None)


def decoder_of(folder: Path, tied: bool | None = None) -> Any:
    """Build config.json's decoder with shapes only; its weights need not exist.

    For a multimodal model, build its text model. `tied`: whether the head is the embedding (None:
    as the configuration says).
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
        if tied is not None:
            config.tie_word_embeddings = tied
        _fix_frequencies(config)
        module = unfilled(getattr(transformers, kind), config)
        _check_sizes(module)
    except Exception as error:  # transformers raises anything for a damaged configuration
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
        text = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
        raise ImportModelError(f"{folder} is no {kind} as config.json has it: {text}") from error
    module.name_or_path = str(folder)
    return module


def _check_sizes(module: Any) -> None:
    """Raise ValueError for a parameter without numbers."""
    for name, parameter in module.named_parameters():
        if not parameter.numel():
            shape = list(parameter.shape)
            raise ValueError(f"{name} would have the shape {shape}; copy config.json again")


def _of_text(config: Any) -> Any:
    """Return the text model's configuration, with the file format of the whole model."""
    text = config.get_text_config()
    text.tie_word_embeddings = getattr(config, "tie_word_embeddings", text.tie_word_embeddings)
    if hasattr(config, "quantization_config"):
        text.quantization_config = config.quantization_config
    return text


def _fix_frequencies(config: Any) -> None:
    """Replace dynamic rotary frequencies by fixed ones, which are equal within the positions that
    the configuration allows; no more are read.
    """
    for name in ("rope_parameters", "rope_scaling"):  # transformers 5 and 4
        table = getattr(config, name, None) or {}
        for one in (table, *table.values()):  # of the model, or of each kind of layer
            if isinstance(one, dict) and one.get("rope_type", one.get("type")) == "dynamic":
                one["rope_type"] = "default"


def shapes_graph(module: Any, batch: int, length: int) -> Graph:
    """Import a decoder on `batch` rows of `length` tokens; `meta` tensors remain shapes."""
    example = torch.zeros(batch, length, dtype=torch.int64)
    return from_torch(module, dict.fromkeys(INPUTS, example))
