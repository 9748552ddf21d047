"""A decoder's weights as a GGUF file that llama.cpp runs on tokens: without a tokenizer.

The keys are those of llama.cpp's convert_hf_to_gguf.py.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import Contents
from pockengine.errors import ImportModelError
from pockengine.models.gguf import (
    ALIGNMENT,
    NewTensor,
    number_key,
    text_key,
    whole_key,
    write_tensors,
)
from pockengine.models.gguf_families import ARCHITECTURES
from pockengine.models.gguf_forms import FORMS, BlockFormat
from pockengine.models.gguf_layouts import laid_out
from pockengine.models.gguf_names import theirs

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Families whose keys are written; others have further settings."""
F32 = FORMS[0]
TYPES = {"f32": F32, "bf16": FORMS[30], "f16": FORMS[1], "int8": FORMS[8], "int4": FORMS[2]}
"""Types of stored weights, by their names in options."""


def write_gguf_model(
    path: Path, config: Any, weights: Mapping[str, Contents], form: BlockFormat
) -> None:
    """Write weights by transformers' names, matrices of whole blocks in `form`, others in F32.

    ImportModelError for a family or a rotation whose keys are not known here.
    """
    keys = _keys(config)
    tensors = {}
    for name, contents in weights.items():
        tensor = theirs(name, config)
        if tensor is None:
            raise ImportModelError(f"llama.cpp has no name for {name} of {config.model_type}")
        shape = contents.type.shape
        fits = len(shape) == 2 and shape[1] % form.group == 0
        own = form if fits else F32
        data = partial(_data, laid_out(contents, name, config, back=False), own)
        tensors[tensor] = NewTensor(shape, own, data)
    write_tensors(path, (b"".join(keys), len(keys)), ALIGNMENT, tensors)


def _data(contents: Contents, form: BlockFormat) -> np.ndarray:
    assert form.encode is not None
    return form.encode(np.asarray(contents.read(), np.float32))


def _keys(config: Any) -> list[bytes]:
    kind = config.model_type
    rotation = dict(getattr(config, "rope_parameters", None) or {})
    if kind not in FAMILIES or rotation.get("rope_type", "default") != "default":
        raise ImportModelError(
            f"a GGUF file is written for {', '.join(FAMILIES)} with plain rotations, not for "
            f"{kind} with {rotation.get('rope_type', 'default')}"
        )
    heads, width = config.num_attention_heads, getattr(config, "head_dim", None)
    width = width or config.hidden_size // heads
    name = ARCHITECTURES.get(kind, kind)
    numbers = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": width,
        "attention.value_length": width,
        "rope.dimension_count": width,
        "vocab_size": config.vocab_size,
    }
    return [
        text_key("general.architecture", name),
        text_key("tokenizer.ggml.model", "none"),
        *(whole_key(f"{name}.{key}", number) for key, number in numbers.items()),
        number_key(f"{name}.attention.layer_norm_rms_epsilon", config.rms_norm_eps),
        number_key(f"{name}.rope.freq_base", rotation.get("rope_theta", 10_000.0)),
    ]
