"""Frontends: a framework's model becomes a forward `Graph`.

Each frontend imports its framework lazily, so that this package works without any of them; a
missing one is an ImportModelError that names the package to install.
"""

from pockengine.frontends.onnx.model import from_onnx, to_initializers
from pockengine.frontends.torch.model import from_torch, to_state_dict

__all__ = ["from_onnx", "from_torch", "to_initializers", "to_state_dict"]
