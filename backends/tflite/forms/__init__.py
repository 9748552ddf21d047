"""TFLite forms of ops: a table by op name.

The compiler's `legalize` rewrites an op without a form, or an error names it.
"""

from collections.abc import Mapping

from pockengine.backends.tflite.forms import (
    arithmetic,
    bits,
    convolutions,
    indices,
    loss,
    movement,
    pooling,
    products,
    randomness,
    stored,
    whole_numbers,
)
from pockengine.backends.tflite.forms.form import Form

FORMS: Mapping[str, Form] = {
    **arithmetic.FORMS,
    **bits.FORMS,
    **convolutions.FORMS,
    **indices.FORMS,
    **loss.FORMS,
    **movement.FORMS,
    **pooling.FORMS,
    **products.FORMS,
    **randomness.FORMS,
    **stored.FORMS,
    **whole_numbers.FORMS,
}
