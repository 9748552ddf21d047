"""LoRA adapters as GGUF, which llama.cpp loads beside a model (`--lora`).

The names are llama.cpp's, with `.lora_a` [rank, in] and `.lora_b` [out, rank]; the file has one
alpha (its convert_lora_to_gguf.py). llama.cpp reads no other trained weights from such a file.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pockengine.compiler.ir.contents import InMemory
from pockengine.compiler.sparse.lora import Adapter
from pockengine.models.gguf import ALIGNMENT, NewTensor, number_key, text_key, write_tensors
from pockengine.models.gguf_families import ARCHITECTURES, KNOWN
from pockengine.models.gguf_forms import FORMS
from pockengine.models.gguf_names import rows_laid_out, theirs

_F32 = FORMS[0]
EMBEDDING = "token_embd.weight"
"""llama.cpp reads this table by rows, and swaps the factors of its adapter."""


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
        if name is None or name == EMBEDDING:
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
        b = InMemory(np.ascontiguousarray(values[adapter.b].T * share))
        tensors[f"{name}.lora_a"] = _tensor(values[adapter.a].T)
        laid_out = rows_laid_out(b, adapter.weight, config, back=False)
        tensors[f"{name}.lora_b"] = _tensor(laid_out.read())
    write_tensors(path, (b"".join(keys), len(keys)), ALIGNMENT, tensors)


def _tensor(array: np.ndarray) -> NewTensor:
    data = np.ascontiguousarray(array, np.float32)
    return NewTensor(data.shape, _F32, lambda: data.reshape(-1).view(np.uint8))
