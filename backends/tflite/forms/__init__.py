"""How each op is written as operators of TFLite: a table, by the op's name.

An op without a form is made of others by the compiler's `legalize`, or is refused by its name.
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
