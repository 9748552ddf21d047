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


def takes_adapters(config: Any, adapters: Sequence[Adapter]) -> bool:
    """Whether llama.cpp has a name for each adapted weight, and none has magnitudes (DoRA)."""
    if getattr(config, "model_type", None) not in KNOWN or any(each.dora for each in adapters):
        return False
    names = [theirs(adapter.weight, config) for adapter in adapters]
    return all(name is not None and name != EMBEDDING for name in names)


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
