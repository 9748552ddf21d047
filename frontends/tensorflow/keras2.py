"""Translate the description of a Keras 2 model into Keras 3's words: plain data into plain data.

Keras 2 wrote files that Keras 3 does not read: modules have other names, layers have arguments that
Keras 3 does not take, and calls name their tensors by lists.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras

from pockengine.errors import ImportModelError
from pockengine.frontends.tensorflow.keras2_operators import (
    HARD_SIGMOID,
    OPERATORS,
    operator_of,
)

MODELS = {
    "Functional": "keras.src.models.functional",
    "Sequential": "keras",
    "Model": "keras",
}
UNUSED: Mapping[str, Collection[Any]] = {
    "build_input_shape": (),
    "groups": (1,),
    "implementation": (),
    "input_length": (),
    "key_shape": (),
    "noise_shape": (None,),
    "query_shape": (),
    "ragged": (False,),
    "rng_type": (),
    "softmax_robust_masking": (False,),
    "time_major": (False,),
    "trainable": (),
    "value_shape": (),
    "kernel_initializer": (),
    "kernel_regularizer": (None,),
    "kernel_constraint": (None,),
}
"""Arguments that some layers of Keras 3 lack, and their required values; any value if empty."""
RECURRENT = frozenset({"Bidirectional", "ConvLSTM2D", "GRU", "LSTM", "RNN", "SimpleRNN"})
CONSTANT = "_CONSTANT_VALUE"
"""Keras 2's placeholder for a layer's name where an argument is a number."""


def in_words_of_keras3(part: Any) -> Any:
    """Return a description, or a part of one, as Keras 3 writes it; ImportModelError if it cannot.

    Classes that are not Keras's own are unchanged.
    """
    if isinstance(part, list):
        return [in_words_of_keras3(one) for one in part]
    if not isinstance(part, dict):
        return part
    if part.get("class_name") in OPERATORS:
        return operator_of(part)
    if part.get("class_name") == "Policy":
        return part["config"]["name"]
    part = {key: in_words_of_keras3(value) for key, value in part.items()}
    name, config = part.get("class_name"), part.get("config")
    if not isinstance(config, dict) or part.get("registered_name") not in (None, name):
        return part
    if name in MODELS and isinstance(config.get("layers"), list):
        return _model(part, str(name), config)
    layer = getattr(keras.layers, str(name), None)
    if layer is None and part.get("module") == "keras.layers":
        raise ImportModelError(
            f"Keras 3 has no layer {name} ({config.get('name')!r}); build the model by other "
            "layers, load the weights, and save it"
        )
    if isinstance(layer, type) and issubclass(layer, keras.layers.Layer):
        part.pop("build_config", None)  # of arguments by Keras 2's names; a call builds the layer
        module = {"module": "keras.layers", "registered_name": None}
        return part | module | {"config": _layer(layer, config)}
    return part


def _layer(layer: type, config: dict[str, Any]) -> dict[str, Any]:
    """Return a layer's arguments, as Keras 3 takes them."""
    config = dict(config)
    shape = config.pop("batch_input_shape", None)
    if layer is keras.layers.InputLayer and shape is not None:
        config["batch_shape"] = shape
    if layer is keras.layers.BatchNormalization and isinstance(config.get("axis"), list):
        (config["axis"],) = config["axis"]
    for key in config:
        if key.endswith("activation") and config[key] == "hard_sigmoid":
            config[key] = HARD_SIGMOID
    known = set(inspect.signature(layer).parameters)
    known |= {"trainable"} if "kwargs" in known else set()
    for key in [key for key in config if key in UNUSED and key not in known]:
        value = config.pop(key)
        if UNUSED[key] and value not in UNUSED[key]:
            raise ImportModelError(
                f"the {layer.__name__} {config.get('name')!r} has {key}={value!r}, which Keras 3 "
                "does not have; build the layer without it, load the weights, and save the model"
            )
    return config


def _model(part: dict[str, Any], name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return a model of layers; one of Keras 2.2 and older is a `Model`."""
    layers = config["layers"]
    if name == "Sequential":
        changes: dict[str, Any] = {"layers": _with_input(layers)}
    else:
        name = "Functional"
        calls = _Calls(layers)
        changes = {
            "layers": [calls.layer(layer) for layer in layers],
            "input_layers": config["input_layers"],
            "output_layers": calls.mapped(config["output_layers"], calls.end),
        }
    words = {"class_name": name, "module": MODELS[name], "registered_name": None}
    if name == "Functional":
        words["registered_name"] = name
    return part | words | {"config": config | changes}


def _with_input(layers: list[Any]) -> list[Any]:
    """Add an input layer if an older Keras has the shape in the first layer only."""
    first = layers[0] if layers else {}
    shape = first.get("batch_input_shape")
    if shape is None or first.get("class_name") == "InputLayer":
        return layers
    config = {"batch_shape": shape, "name": f"{first['config'].get('name')}_input"}
    return [{"class_name": "InputLayer", "module": "keras.layers", "config": config}, *layers]


class _Calls:
    """The calls of a functional model's layers, whose tensors are lists of a name and numbers."""

    def __init__(self, layers: list[Any]) -> None:
        """Register the layers; in Keras 2 a nested model counts the call that created it."""
        self.kinds = {layer["name"]: layer["class_name"] for layer in layers}
        self.made = {
            layer["name"]
            for layer in layers
            if layer["class_name"] in MODELS
            and layer["config"]["layers"][0]["class_name"] == "InputLayer"
        }

    def layer(self, layer: dict[str, Any]) -> dict[str, Any]:
        """Return a layer with its calls in Keras 3's words."""
        nodes = layer["inbound_nodes"]
        kind = layer["class_name"]
        return layer | {"inbound_nodes": [self._node(kind, node) for node in nodes]}

    def _node(self, kind: str, node: Any) -> dict[str, Any]:
        entries = self._entries(node)
        kwargs = entries[-1][3] if entries and len(entries[-1]) == 4 else {}
        kwargs = self.mapped(kwargs, self._tensor)
        argument = self.mapped(node, self._tensor)
        if kind == "Operator" and "__keras_tensor__" not in repr((argument, kwargs)):
            raise ImportModelError(
                "a function of numbers alone, which a model's file has no use for"
            )
        if isinstance(argument, (int, float)):  # Keras takes tensors alone by position
            return {"args": [], "kwargs": {"first": argument} | kwargs}
        if isinstance(argument, list) and len(argument) == 1:
            (argument,) = argument
        if kind in RECURRENT and isinstance(argument, list):
            argument, *states = argument
            kwargs["initial_state"] = states
            kwargs.pop("constants", None)
        return {"args": [argument], "kwargs": kwargs}

    def _entries(self, part: Any) -> list[Any]:
        if self._is_tensor(part):
            return [part]
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return [entry for inner in parts for entry in self._entries(inner)]

    def mapped(self, part: Any, change: Callable[[list[Any]], Any]) -> Any:
        """Return a structure with each of its tensors changed."""
        if self._is_tensor(part):
            return change(part)
        if isinstance(part, dict):
            return {key: self.mapped(value, change) for key, value in part.items()}
        return [self.mapped(one, change) for one in part] if isinstance(part, list) else part

    def _is_tensor(self, part: Any) -> bool:
        return (
            isinstance(part, list)
            and len(part) in (3, 4)
            and isinstance(part[0], str)
            and (part[0] in self.kinds or (part[0] == CONSTANT and part[1] == -1))
        )

    def _tensor(self, entry: list[Any]) -> Any:
        name, node, tensor = entry[:3]
        if name == CONSTANT:
            return tensor
        history = [name, node - (name in self.made), tensor]
        config = {"shape": [], "dtype": "float32", "keras_history": history}
        return {"class_name": "__keras_tensor__", "config": config}

    def end(self, entry: list[Any]) -> list[Any]:
        """Return an output; Keras 3 counts the making call of functional models itself."""
        name, node, tensor = entry[:3]
        return [name, node - (name in self.made and self.kinds[name] == "Sequential"), tensor]
