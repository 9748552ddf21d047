"""The worker process for ONNX Runtime's training; see serve.py for its protocol."""

import onnxruntime

from pockengine.farm.references.ort_reference import OrtTrainer
from pockengine.farm.references.serve import serve

if __name__ == "__main__":
    serve(str(onnxruntime.__version__), lambda data, engine, threads: OrtTrainer(data, threads))
