"""MLPerf Tiny's ResNet-8, loaded from Keras layers by their order."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from pockengine.errors import ImportModelError
from pockengine.models.mlperf import ResNet8, arrays_of, layers_of, load_resnet8


def test_resnet8_loads_keras_layers_by_their_order(tmp_path: Path) -> None:
    path, source = tmp_path / "ic_resnet8.h5", ResNet8().eval()
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for keras, module in layers_of(source):
            group = file.create_group(f"model_weights/{keras}/{keras}")
            for name, target in arrays_of(module):
                array = random.uniform(0.1, 1, target.shape).astype(np.float32)
                target.data.copy_(torch.from_numpy(array))
                kernel = {4: (2, 3, 1, 0), 2: (1, 0)}.get(array.ndim)
                group[name] = array if kernel is None else array.transpose(kernel)
    x = torch.randn(2, 3, 32, 32)

    assert torch.equal(load_resnet8(path)(x), source(x))
    with h5py.File(path, "a") as file:
        del file["model_weights/dense"]
    with pytest.raises(ImportModelError, match="holds no ResNet-8 of MLPerf Tiny"):
        load_resnet8(path)
