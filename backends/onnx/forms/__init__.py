"""How each op is written as ONNX nodes: a table, by the op's name.

An op without a form is made of others by the compiler's `legalize`, or is refused by its name.
"""

from collections.abc import Mapping

from pockengine.backends.onnx.forms import (
    arithmetic,
    indices,
    loss,
    movement,
    products,
    quantized,
    randomness,
    rows,
    scaled,
    stored,
    windows,
)
from pockengine.backends.onnx.forms.form import Form

FORMS: Mapping[str, Form] = {
    **arithmetic.FORMS,
    **indices.FORMS,
    **loss.FORMS,
    **movement.FORMS,
    **products.FORMS,
    **quantized.FORMS,
    **randomness.FORMS,
    **rows.FORMS,
    **scaled.FORMS,
    **stored.FORMS,
    **windows.FORMS,
}
