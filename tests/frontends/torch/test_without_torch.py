"""The package without PyTorch: it imports, and names the missing package on use."""

import sys

import numpy as np
import pytest

from pockengine.compiler.ir import Builder, Graph
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch, to_state_dict
from pockengine.models.registry import parse_model


@pytest.fixture(autouse=True)
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def test_importing_a_module_names_the_package_to_install() -> None:
    with pytest.raises(ImportModelError, match=r"from_torch needs PyTorch.*pip install torch"):
        from_torch(object(), ())


def test_loading_weights_back_names_the_package_to_install() -> None:
    graph = Graph("test")
    Builder(graph).param("weight", np.ones(3, np.float32))

    with pytest.raises(ImportModelError, match=r"to_state_dict needs PyTorch.*pip install torch"):
        to_state_dict(graph)


def test_model_names_need_no_torch() -> None:
    assert parse_model("mobilenet_v2-0.35-96").input_shape == (3, 96, 96)
