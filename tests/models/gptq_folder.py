"""A tiny decoder with GPTQ layers, packed as by AutoGPTQ."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from pockengine.tests.zoo.zoo_language import GROUPED, build

HALF, EIGHT = 1 << 3, 8


def words(codes: np.ndarray) -> np.ndarray:
    """Pack 4-bit codes along the first axis into i32."""
    fields = codes.astype(np.uint32).reshape(-1, EIGHT, codes.shape[1])
    shifts = np.arange(0, 32, 4, dtype=np.uint32)[None, :, None]
    return np.bitwise_or.reduce(fields << shifts, axis=1).view(np.int32)


def quantize_folder(folder: Path, **sizes: Any) -> Any:
    """Save a decoder with GPTQ layers, without the smallest code; return its module."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    shape = {**GROUPED, "hidden_size": 64, "intermediate_size": 96, **sizes}
    module = build("Llama", "LlamaForCausalLM", **shape)
    module.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, linear in module.model.layers.named_modules():
        if isinstance(linear, torch.nn.Linear):
            path = f"model.layers.{name}"
            outputs, inputs = tensors.pop(f"{path}.weight").shape
            codes = rng.integers(3, 16, (inputs, outputs))
            scales = rng.uniform(0.01, 0.03, (inputs // 32, outputs)).astype(np.float16)
            zeros = np.full((outputs, inputs // 32), HALF - 1)
            tensors[f"{path}.qweight"] = words(codes)
            tensors[f"{path}.qzeros"] = np.ascontiguousarray(words(zeros).T)
            tensors[f"{path}.scales"] = scales
            numbers = (codes - HALF) * np.repeat(scales.astype(np.float32), 32, 0)
            linear.weight.data = torch.from_numpy(np.float32(numbers.T))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    about = json.loads((folder / "config.json").read_text())
    about["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    (folder / "config.json").write_text(json.dumps(about))
    return module
