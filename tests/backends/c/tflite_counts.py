"""Instructions of TFLite's inference in f32 and int8 on an emulated Arm board, beside int8_counts.

python -m pockengine.tests.backends.c.tflite_counts rpi4 prints a line of JSON for each type: the
net and batch of int8_counts.py, converted by this machine's TensorFlow, in tflite-runtime's aarch64
wheel with the delegate that it takes by itself. Weights and pictures are drawn, as the count does
not depend on them, and gates are open as in farm/bench/case.py; what int8 predicts must be what f32
does, within its own rounding.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from pockengine.devices import load_device
from pockengine.errors import FarmError
from pockengine.farm.references import marks
from pockengine.farm.references.guest_install import install_guest_python
from pockengine.farm.references.instructions import GUEST, count
from pockengine.farm.references.keras_models import build_keras

MODEL, CLASSES, BATCH, COUNTED = "mobilenet_v2-0.35-96", 2, 4, 3
OPEN_BIAS = 2.0
TOLERANCE = 0.1
"""Of the largest of f32's outputs: int8 rounds every activation, f32 none."""


def convert(model: tf.keras.Model, samples: np.ndarray, int8: bool) -> bytes:
    """Return a net as a file of TFLite; in int8, inputs and outputs too, of ranges on samples."""
    predict = tf.function(
        lambda x: model(x, training=False),
        input_signature=[tf.TensorSpec(samples.shape[1:], tf.float32)],
    )
    constant = convert_variables_to_constants_v2(predict.get_concrete_function())
    converter = tf.lite.TFLiteConverter.from_concrete_functions([constant])
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([batch] for batch in samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        # tflite-runtime 2.14 is older than matmuls with a scale for each feature.
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True
    return bytes(converter.convert())


def run(device: str, file: Path, pictures: Path) -> dict[str, Any]:
    """Count inferences on a board's CPU; return what the guest printed, and the counts."""
    board, guest = load_device(device), install_guest_python("tflite")
    if board.cpu.arch != GUEST or board.emulator is None:
        raise FarmError(f"TFLite is emulated for {GUEST} boards alone, not for {device}")
    sources = file.parent / "sources"
    staged = sources / "pockengine" / "farm" / "references"
    staged.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(str(marks.__file__), staged / "marks.py")
    script = Path(__file__).with_name("tflite_guest.py")
    command = [str(guest.python), "-P", str(script), str(file), str(pictures), str(COUNTED)]
    paths = os.pathsep.join([str(sources), str(guest.packages)])
    environment = {"PYTHONPATH": paths, "PATH": os.environ.get("PATH", os.defpath)}
    counted = count(
        command, COUNTED, root=guest.root, environment=environment, cpu=board.emulator.cpu
    )
    return {**json.loads(counted.stdout), "regions": counted.regions}


@click.command()
@click.argument("device")
def main(device: str) -> None:
    """Count on DEVICE, one of the emulated Arm boards."""
    tf.keras.utils.set_random_seed(0)
    net = build_keras(MODEL, CLASSES, BATCH)
    for name, parameter in net.parameters.items():
        if name.endswith(".bias") and name.replace(".bias", ".running_mean") in net.parameters:
            parameter.variable.assign(np.full(parameter.variable.shape, OPEN_BIAS, np.float32))
    shape = (4, BATCH, *net.model.input_shape[1:])
    samples = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    found = {}
    with tempfile.TemporaryDirectory(prefix="pockengine-tflite-") as place:
        np.save(Path(place) / "pictures.npy", samples[0])
        for dtype in ("f32", "int8"):
            file = Path(place) / f"{dtype}.tflite"
            file.write_bytes(convert(net.model, samples, dtype == "int8"))
            found[dtype] = run(device, file, Path(place) / "pictures.npy")
    outputs = [np.array(one.pop("outputs")) for one in found.values()]
    error = float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[0]).max())
    if not error <= TOLERANCE:
        raise FarmError(f"int8 predicts something else than f32, off by {error:.1e}")
    for dtype, one in found.items():
        print(json.dumps({"device": device, "type": dtype, "what": "prediction", **one}))
    print(json.dumps({"int8_beside_f32": error}))


if __name__ == "__main__":
    main()
