"""ONNX Runtime's on-device training: the net as an ONNX graph, its artifacts, a step.

The gradient graph is built by ONNX Runtime when a trainer starts, its loss and optimizer are its
own. Pictures are NCHW, as its kernels want them; running statistics stay as they are.
"""

import importlib
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors
from pockengine.farm.references.nets import BATCH_NORM_EPS, convolutional_net
from pockengine.models.registry import parse_model

OPSET, IR_VERSION = 17, 9  # ops that its gradient builder supports


class OnnxLayers:
    """Layers as ONNX nodes; a tensor is its name."""

    def __init__(self, weights: Tensors) -> None:
        """Start an empty graph over weights by PyTorch's names."""
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.used: dict[str, NDArray[np.generic]] = {}

    def convolution(self, x: str, name: str, filters: int, kernel: int, stride: int = 1) -> str:
        """Convolve without a bias, with padding that keeps the resolution (before the stride)."""
        return self._convolve(x, name, kernel, stride=stride, groups=1)

    def depthwise(self, x: str, name: str, kernel: int, stride: int) -> str:
        """Filter each channel separately, without a bias."""
        return self._convolve(
            x, name, kernel, stride=stride, groups=len(self.weights[f"{name}.weight"])
        )

    def _convolve(self, x: str, name: str, kernel: int, stride: int, groups: int) -> str:
        return self._node(
            "Conv",
            [x, self._weight(f"{name}.weight")],
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
            group=groups,
        )

    def batch_norm(self, x: str, name: str) -> str:
        """Normalize each channel by the batch."""
        keys = ("weight", "bias", "running_mean", "running_var")
        inputs = [x, *(self._weight(f"{name}.{key}") for key in keys)]
        return self._node(
            "BatchNormalization", inputs, outputs=3, epsilon=BATCH_NORM_EPS, training_mode=1
        )

    def linear(self, x: str, name: str, outputs: int) -> str:
        """Multiply by a matrix and add a bias."""
        inputs = [x, self._weight(f"{name}.weight"), self._weight(f"{name}.bias")]
        return self._node("Gemm", inputs, transB=1)

    def relu(self, x: str, most: float | None = None) -> str:
        """Clamp to [0, most]."""
        if most is None:
            return self._node("Relu", [x])
        limits = [self._constant(0.0), self._constant(most)]
        return self._node("Clip", [x, *limits])

    def add(self, x: str, y: str) -> str:
        """Add two tensors."""
        return self._node("Add", [x, y])

    def max_pool(self, x: str) -> str:
        """Take the largest of 3x3 by stride 2."""
        return self._node("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])

    def global_average(self, x: str) -> str:
        """Average each channel over its picture."""
        return self._node("Flatten", [self._node("GlobalAveragePool", [x])])

    def _node(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> str:
        names = [f"{op}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0]

    def _weight(self, name: str) -> str:
        self.used[name] = self.weights[name]
        return name

    def _constant(self, value: float) -> str:
        name = f"constant_{value:g}"
        self.used[name] = np.array(value, np.float32)
        return name


def build_onnx(data: JobData) -> tuple[onnx.ModelProto, list[str]]:
    """Return the forward model, and the names of the weights that train."""
    name = parse_model(data.job.model)
    net = OnnxLayers(data.weights)
    output = convolutional_net(net, "images", name, data.job.classes)
    batch = data.images.shape[1]
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, data.images.shape[1:])
    logits = helper.make_tensor_value_info(output, TensorProto.FLOAT, (batch, data.job.classes))
    weights = [numpy_helper.from_array(np.array(x), key) for key, x in net.used.items()]
    graph = helper.make_graph(net.nodes, str(name), [images], [logits], weights)
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    trainable = data.job.trainable
    trained = [
        key
        for key in net.used
        if (key.endswith((".weight", ".bias")) if trainable is None else key in trainable)
    ]
    return onnx.shape_inference.infer_shapes(model), trained


class OrtTrainer:
    """Trains a job's model step by step by ONNX Runtime's training API."""

    def __init__(self, data: JobData, threads: int) -> None:
        """Build the training graph; FarmError for anything that this API cannot train."""
        api, artifacts = _training_api()
        job = data.job
        if job.momentum or job.weight_decay:
            raise FarmError("ONNX Runtime's SGD has neither momentum nor decay")
        if any(channels is not None for channels in (job.trainable or {}).values()):
            raise FarmError("ONNX Runtime trains whole tensors, and no channels of one")
        if job.batch_norm != "train":
            raise FarmError("batch norms train by the batch here")
        model, trained = build_onnx(data)
        frozen = [weight.name for weight in model.graph.initializer if weight.name not in trained]
        with tempfile.TemporaryDirectory(prefix="pockengine-ort-") as folder:
            artifacts.generate_artifacts(
                model,
                requires_grad=trained,
                frozen_params=frozen,
                loss=artifacts.LossType.CrossEntropyLoss,
                optimizer=artifacts.OptimType.SGD,
                artifact_directory=folder,
            )
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            place = Path(folder)
            state = api.CheckpointState.load_checkpoint(str(place / "checkpoint"))
            self.module = api.Module(
                str(place / "training_model.onnx"), state, session_options=options
            )
            update = place / "optimizer_model.onnx"
            _lower_version(update)
            self.optimizer = api.Optimizer(str(update), self.module)
        self.optimizer.set_learning_rate(job.learning_rate)
        self.module.train()
        self.batches = [
            (np.ascontiguousarray(images), np.ascontiguousarray(labels))
            for images, labels in zip(data.images, data.labels, strict=True)
        ]

    def step(self, index: int) -> float:
        """Train on a batch and return its loss."""
        loss = self.module(*self.batches[index])
        self.optimizer.step()
        self.module.lazy_reset_grad()
        return float(loss)

    def predict(self, index: int) -> NDArray[np.float32]:
        """Refuse: the training graph gives a loss alone."""
        raise FarmError("ONNX Runtime's training graph gives no logits here")

    def tensors(self) -> Tensors:
        """Return nothing: only losses are compared."""
        return {}


def _training_api() -> tuple[Any, Any]:
    """Import the training API without its package's own start, which wants PyTorch for fp16."""
    name = "onnxruntime.training"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(Path(str(onnxruntime.__file__)).parent / "training")]
        sys.modules[name] = package
    return importlib.import_module(f"{name}.api"), importlib.import_module(f"{name}.artifacts")


def _lower_version(path: Path) -> None:
    """Give a model the version that ONNX Runtime reads: it is written by a newer onnx."""
    model = onnx.load(str(path))
    model.ir_version = IR_VERSION
    onnx.save(model, str(path))
