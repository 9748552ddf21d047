"""Int8 TFLite files, and their tensors as the interpreter and the oracle compute them."""

import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.passes.integers.hold_integers import HoldIntegers
from pockengine.compiler.passes.integers.integer_arithmetic import IntegerArithmetic
from pockengine.frontends.layout import framework_order
from pockengine.frontends.tensorflow.lite.file import LiteModel, read_lite
from pockengine.frontends.tensorflow.lite.importer import declare
from pockengine.frontends.tensorflow.lite.walk import OperatorWalker


def int8_file(model: keras.Model, path: Path) -> Path:
    """Write a model with one input as an int8 file, calibrated by normal numbers."""
    rng = np.random.default_rng(0)
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: (
        [rng.standard_normal(model.inputs[0].shape).astype(np.float32)] for _ in range(20)
    )
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    path.write_bytes(converter.convert())
    return path


def interpreter_of(path: Path) -> "tf.lite.Interpreter":
    """Return an interpreter that uses reference kernels and preserves every tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = tf.lite.Interpreter(
            str(path),
            experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
    made.allocate_tensors()
    return made


def our_tensors(model: LiteModel, x: np.ndarray) -> dict[int, np.ndarray]:
    """Compute every quantized tensor of a file by the oracle in integer arithmetic."""
    name, whole = (
        model.name_of(model.main.inputs[0]),
        OperatorWalker(model, integers=True, chosen={}),
    )
    declare(whole, {name: x})
    whole.build(whole.main)
    for number, value in whole.main.known.items():
        tensor = model.main.tensors[number]
        if tensor.quantized and tensor.data is None:
            whole.g.output(str(number), framework_order(whole.g, value))
    graph = whole.g.graph
    HoldIntegers().run(graph)
    IntegerArithmetic().run(graph)
    return {int(number): data for number, data in run(graph, {name: x}).items()}


def check_file(path: Path) -> None:
    """Compare every tensor of a file with the interpreter's."""
    model, reference = read_lite(path), interpreter_of(path)
    (inputs,) = reference.get_input_details()
    rng = np.random.default_rng(1)
    if inputs["dtype"] == np.float32:
        x = rng.uniform(-1, 1, inputs["shape"]).astype(np.float32)
    else:
        x = rng.integers(-128, 128, inputs["shape"]).astype(np.int8)
    reference.set_tensor(inputs["index"], x)
    reference.invoke()
    found = our_tensors(model, x)
    results = [number for operator in model.main.operators for number in operator.outputs]
    quantized = {number for number in results if model.main.tensors[number].quantized}
    assert quantized
    assert quantized <= found.keys()
    for number, real in found.items():
        tensor = model.main.tensors[number]
        integers = np.rint(real / tensor.scale[0] + int(tensor.zero[0])).astype(np.int64)
        np.testing.assert_array_equal(integers, reference.get_tensor(number), tensor.name)
