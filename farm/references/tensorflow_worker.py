"""The worker process for TensorFlow; see serve.py for its protocol.

It runs on this machine (Keras 3) and in an emulated board's Python (TensorFlow 2.15, Keras 2).
"""

import tensorflow as tf

from pockengine.errors import FarmError
from pockengine.farm.references.engines import find_engine
from pockengine.farm.references.job import JobData
from pockengine.farm.references.serve import serve
from pockengine.farm.references.tensorflow_reference import KerasNets, TensorFlowTrainer

MODES = ("eager", "graph", "xla")


class TensorFlowFramework:
    """TensorFlow on the CPU with a fixed number of threads, inside an op and between ops."""

    def __init__(self) -> None:
        """Start before TensorFlow creates its threads."""
        self.threads: int | None = None
        self.nets = KerasNets()

    def prepare(self, data: JobData, engine: str, threads: int) -> TensorFlowTrainer:
        """Build the job's Keras model."""
        found = find_engine(engine)
        if found.framework.packages != ("tensorflow",) or found.mode not in MODES:
            raise FarmError(f"{engine} is no engine of TensorFlow's worker; its modes: {MODES}")
        if self.threads is None:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)  # 9 % faster than one
            self.threads = threads
        if threads != self.threads:
            raise FarmError("TensorFlow's threads cannot change once it has run; start a worker")
        graph, xla = found.mode == "graph", found.mode == "xla"
        return TensorFlowTrainer(data, graph, xla, self.nets)


if __name__ == "__main__":
    serve(str(tf.__version__), TensorFlowFramework().prepare)
