"""TensorFlow and Keras: models and functions become a forward `Graph`.

Public: `from_tensorflow` (import), `to_weights` and `load_weights` (tuned weights back),
`to_optimizer` (Keras's optimizers), `is_tensorflow` (whose model is it). All other modules are
internal. TensorFlow is imported only when `from_tensorflow` or `load_weights` is called.
"""

from pockengine.frontends.tensorflow.model import from_tensorflow
from pockengine.frontends.tensorflow.optimizers import to_optimizer
from pockengine.frontends.tensorflow.recognize import is_tensorflow
from pockengine.frontends.tensorflow.weights import load_weights, to_weights

__all__ = ["from_tensorflow", "is_tensorflow", "load_weights", "to_optimizer", "to_weights"]
