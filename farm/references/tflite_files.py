"""TensorFlow's conversion of a job's net into files of TFLite that predict, in f32 and in int8.

    python -m pockengine.farm.references.tflite_files JOB

JOB is a folder of `write_job`; the files and the first batch, as they take it, are written into it.
Ranges of int8 are those of the job's own pictures, as in the bench's other int8.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pockengine.farm.references.job import read_job
from pockengine.farm.references.tflite_names import PICTURES, TYPES, file_of

if TYPE_CHECKING:
    import tensorflow as tf


def convert(model: "tf.keras.Model", batches: np.ndarray, int8: bool) -> bytes:
    """Return a net as a file of TFLite; in int8, its input and output too, of ranges on batches.

    `batches` are f32 [steps, N, H, W, C].
    """
    import tensorflow as tf

    constant = freeze(model, batches.shape[1:])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([constant])
    if int8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([batch] for batch in batches)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        # tflite-runtime 2.14 is older than matmuls with a scale for each feature.
        converter._experimental_disable_per_channel_quantization_for_dense_layers = True
    return bytes(converter.convert())


def freeze(
    model: "tf.keras.Model", shape: tuple[int, ...]
) -> "tf.types.experimental.ConcreteFunction":
    """Return a net's prediction for f32 pictures of a shape, with its weights as constants."""
    import tensorflow as tf
    from tensorflow.python.framework import convert_to_constants

    predict = tf.function(
        lambda x: model(x, training=False), input_signature=[tf.TensorSpec(shape, tf.float32)]
    )
    return convert_to_constants.convert_variables_to_constants_v2(predict.get_concrete_function())


def main(folder: Path) -> None:
    """Convert the job's net, with its weights."""
    from pockengine.farm.references.keras_models import build_keras

    data = read_job(folder)
    net = build_keras(data.job.model, data.job.classes, data.images.shape[1])
    net.load(data.weights)
    batches = np.ascontiguousarray(np.moveaxis(data.images, 2, -1))
    np.save(folder / PICTURES, batches[0])
    for dtype in TYPES:
        (folder / file_of(dtype)).write_bytes(convert(net.model, batches, dtype == "int8"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Convert a job's net into files of TFLite.")
    parser.add_argument("job", type=Path, help="a folder that write_job has written")
    main(parser.parse_args().job)
