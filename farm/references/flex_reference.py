"""TensorFlow's own on-device training: its graph of a step as a TFLite file with Flex operators.

The step of `tensorflow_reference.py` is the signature `train`, as in Google's guide.
TensorFlow's Flex delegate runs operators that TFLite lacks, such as gradients of convolutions.
Wheels of TensorFlow 2.15 have that delegate, those of 2.21 do not.
"""

import multiprocessing
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.job import JobData, Tensors, read_job, write_job
from pockengine.farm.references.tensorflow_reference import TensorFlowTrainer

MODEL = "model.tflite"


class FlexTrainer:
    """Trains a job's model step by step by calling the signature."""

    def __init__(self, data: JobData, threads: int) -> None:
        """Convert the step, and read it; FarmError if the interpreter has no Flex delegate."""
        with tempfile.TemporaryDirectory(prefix="pockengine-flex-") as name:
            folder = Path(name)
            write_job(folder, data)
            _convert_apart(folder)
            model = (folder / MODEL).read_bytes()
        self.file_bytes = len(model)
        self.interpreter = tf.lite.Interpreter(model_content=model, num_threads=threads)
        try:
            self.train = self.interpreter.get_signature_runner("train")
        except RuntimeError as error:
            raise _refusal(error) from error
        pictures = data.images.ndim == 5
        self.batches = [
            (np.ascontiguousarray(np.moveaxis(images, 1, -1) if pictures else images), labels)
            for images, labels in zip(data.images, data.labels, strict=True)
        ]

    def step(self, index: int) -> float:
        """Train on a batch and return its loss."""
        images, labels = self.batches[index]
        try:
            return float(self.train(images=images, labels=labels)["loss"])
        except RuntimeError as error:
            raise _refusal(error) from error

    def predict(self, index: int) -> NDArray[np.float32]:
        """Raise FarmError: the file has only the signature `train`."""
        raise FarmError("the file of Flex operators gives no logits here")

    def tensors(self) -> Tensors:
        """Return nothing: only losses are compared."""
        return {}


def convert(folder: Path) -> None:
    """Write a job's step into its folder as a TFLite file."""
    data = read_job(folder)
    trainer = TensorFlowTrainer(data, graph=True)
    images, labels = trainer.batches[0]
    step = tf.function(
        lambda images, labels: {"loss": trainer.train(images, labels)},
        input_signature=[
            tf.TensorSpec(images.shape, images.dtype, name="images"),
            tf.TensorSpec(labels.shape, labels.dtype, name="labels"),
        ],
    )
    module = tf.Module()
    module.variables_of_the_step = trainer.variables
    saved = str(folder / "saved")
    tf.saved_model.save(module, saved, signatures={"train": step})
    converter = tf.lite.TFLiteConverter.from_saved_model(saved)
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS,
        tf.lite.OpsSet.SELECT_TF_OPS,
    ]
    converter.experimental_enable_resource_variables = True
    (folder / MODEL).write_bytes(converter.convert())


def _convert_apart(folder: Path) -> None:
    """Convert in a separate process, so that its memory does not count."""
    process = multiprocessing.get_context("spawn").Process(target=convert, args=(folder,))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise FarmError(f"TensorFlow {tf.__version__} converts no training step of this model")


def _refusal(error: RuntimeError) -> FarmError:
    words = str(error).split(". ")[0]
    return FarmError(
        f"TensorFlow {tf.__version__} has no Flex delegate, or refuses the file: {words}; "
        "2.15's wheel has it"
    )
