"""The worker process for ONNX Runtime's training; see serve.py for its protocol."""

import onnxruntime

from pockengine.farm.references.job import JobData
from pockengine.farm.references.ort_reference import OrtTrainer
from pockengine.farm.references.serve import serve


class OrtFramework:
    """ONNX Runtime on the CPU."""

    version = str(onnxruntime.__version__)

    def prepare(self, data: JobData, engine: str, threads: int) -> OrtTrainer:
        """Build the training artifacts of the job's model."""
        return OrtTrainer(data, threads)


if __name__ == "__main__":
    serve(OrtFramework())
