"""The worker process that trains by TFLite with Flex operators; see serve.py."""

import tensorflow as tf

from pockengine.farm.references.flex_reference import FlexTrainer
from pockengine.farm.references.serve import serve

if __name__ == "__main__":
    serve(str(tf.__version__), lambda data, engine, threads: FlexTrainer(data, threads))
