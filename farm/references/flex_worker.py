"""The worker process that trains by TFLite with Flex operators; see serve.py."""

import tensorflow as tf

from pockengine.farm.references.flex_reference import FlexTrainer
from pockengine.farm.references.job import JobData
from pockengine.farm.references.serve import serve


class FlexFramework:
    """TensorFlow's interpreter of TFLite files."""

    version = str(tf.__version__)

    def prepare(self, data: JobData, engine: str, threads: int) -> FlexTrainer:
        """Convert the job's step."""
        return FlexTrainer(data, threads)


if __name__ == "__main__":
    serve(FlexFramework())
