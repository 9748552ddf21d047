"""ONNX forms of ops: a table by op name.

The compiler's `legalize` rewrites an op without a form, or an error names it.
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
