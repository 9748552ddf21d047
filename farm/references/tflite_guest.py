"""Run by tflite_inference.py in an emulated Python: inferences of a file, each a counted region.

It prints the runtime's version and the last outputs as JSON, integers as the real numbers that
they stand for.
"""

import json
import sys
from importlib.metadata import version

import numpy as np
from tflite_runtime.interpreter import Interpreter

from pockengine.farm.references.marks import CallMarks


def main(model: str, pictures: str, count: int) -> None:
    """Predict the pictures `count` times on one thread."""
    marks, x = CallMarks(), np.load(pictures)
    runtime = Interpreter(model, num_threads=1)
    runtime.allocate_tensors()
    source, target = runtime.get_input_details()[0], runtime.get_output_details()[0]
    if source["dtype"] == np.int8:
        scale, zero = source["quantization"]
        x = np.clip(np.round(x / scale) + zero, -128, 127).astype(np.int8)
    runtime.set_tensor(source["index"], x)
    for _ in range(count):
        marks.open()
        runtime.invoke()
        marks.close()
    y = runtime.get_tensor(target["index"])
    if y.dtype == np.int8:
        scale, zero = target["quantization"]
        y = (y.astype(np.float32) - zero) * scale
    print(json.dumps({"version": version("tflite-runtime"), "outputs": y.tolist()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
