"""Edge cases of TensorFlow and Keras: results equal TensorFlow's, in the oracle and in C."""

from pockengine.tests.frontends.edges import keras_frontend
from pockengine.tests.frontends.edges.keras_cases import groups
from pockengine.tests.frontends.edges.sweep import EdgeTests, Sweep

OF_INFINITIES = "a product or quotient of infinities"
ANGLE = "0 / 0 in TensorFlow, 0 here as in PyTorch"
INDEX_OF_NAN = "TensorFlow's index of the largest among NaN depends on their order"
ROUNDED = (
    "TensorFlow's exp(x) - 1 is 0 for small negative x, so its gradient takes the other branch"
)
WHOLE = "the quotient by infinity is rounded down to -1; it is 0 in TensorFlow"
ROOT = "a root of -0 or minus infinity, which TensorFlow's optimizer may compute as a power"

EXEMPT = {
    "all prod of minus infinities: gradient 0": OF_INFINITIES,
    "all prod of with infinity: gradient 0": OF_INFINITIES,
    "argmax: result 0": INDEX_OF_NAN,
    "argmax: result 1": INDEX_OF_NAN,
    "ops.hard_silu: gradient 0": OF_INFINITIES,
    "ops.selu: gradient 0": ROUNDED,
    "ops.softsign: gradient 0": OF_INFINITIES,
    "prod: gradient 0": OF_INFINITIES,
    "tf.atan2: gradient 0": ANGLE,
    "tf.atan2: gradient 1": ANGLE,
    "tf.math.floormod: gradient 1": WHOLE,
    "tf.math.softsign: gradient 0": OF_INFINITIES,
    "tf.nn.selu: gradient 0": ROUNDED,
    "tf.pow -0.5: result 0": ROOT,
    "tf.pow 0.5: gradient 0": ROOT,
    "tf.pow 1.5: gradient 0": ROOT,
}


class TestEdges(EdgeTests):
    sweep = Sweep(keras_frontend, groups())
    exempt = EXEMPT
