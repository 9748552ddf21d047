"""LoRA adapters as GGUF, which llama.cpp loads beside a model (`--lora`).

The names are llama.cpp's, with `.lora_a` [rank, in] and `.lora_b` [out, rank]; the file has one
alpha (its convert_lora_to_gguf.py). llama.cpp reads no other trained weights from such a file.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.sparse.lora import Adapter
from pockengine.models.gguf import ALIGNMENT, NewTensor, number_key, text_key, write_tensors
from pockengine.models.gguf_families import ARCHITECTURES, KNOWN
from pockengine.models.gguf_forms import FORMS
from pockengine.models.gguf_layouts import factors_laid_out, layout_of
from pockengine.models.gguf_names import theirs

_F32 = FORMS[0]
PLAIN = (
    "token_embd.weight",
    "position_embd.weight",
    "per_layer_token_embd.weight",
    "per_layer_model_proj.weight",
)
"""Weights whose adapters llama.cpp ignores, or reads with swapped factors (token_embd), as it does
not multiply by them with `build_lora_mm`; nor by convolutions."""
NOT_PRODUCTS = re.compile(r".*\.(ssm_in|ffn_(gate_up|down)_exps)\.weight")
"""Weights that most files of the family have as several tensors, and experts in one tensor."""


def obstacle(config: Any, adapters: Sequence[Adapter]) -> str | None:
    """Return why llama.cpp cannot load these adapters, and the alternative; None if it can."""
    merged = "; give llama.cpp the merged model"
    kind = getattr(config, "model_type", None)
    if kind not in KNOWN:
        return (
            f"llama.cpp's names of weights are known for {', '.join(KNOWN)}, not for {kind}{merged}"
        )
    for adapter in adapters:
        name = theirs(adapter.weight, config)
        if adapter.dora:
            return (
                f"{adapter.weight} has a magnitude (DoRA), and llama.cpp's adapters have factors A "
                f"and B only{merged}, or train with the scheme lora"
            )
        none = name is None or name in PLAIN or NOT_PRODUCTS.fullmatch(name)
        if none or layout_of(adapter.weight, config).squeezed:
            return f"llama.cpp reads no adapter of {adapter.weight}{merged}"
    return None


def write_gguf_adapters(
    path: Path, adapters: Sequence[Adapter], values: Mapping[str, np.ndarray], config: Any
) -> None:
    """Write adapters from `values`, in our layouts; another alpha than the first one's scales B."""
    alpha = adapters[0].plain_alpha
    kind = config.model_type
    keys = (
        text_key("general.architecture", ARCHITECTURES.get(kind, kind)),
        text_key("general.type", "adapter"),
        text_key("adapter.type", "lora"),
        number_key("adapter.lora.alpha", alpha),
    )
    tensors = {}
    for adapter in adapters:
        name = theirs(adapter.weight, config)
        share = np.float32(adapter.plain_alpha / alpha)
        a, b = values[adapter.a].T, values[adapter.b].T * share
        a, b = factors_laid_out(a, b, adapter.weight, config)
        tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"] = _tensor(a), _tensor(b)
    write_tensors(path, (b"".join(keys), len(keys)), ALIGNMENT, tensors)


def _tensor(array: np.ndarray) -> NewTensor:
    data = np.ascontiguousarray(array, np.float32)
    return NewTensor(data.shape, _F32, lambda: data.reshape(-1).view(np.uint8))
