"""docs/onnx.md says of every op what becomes of it in ONNX."""

from pockengine.backends.onnx.forms import FORMS
from pockengine.compiler.ops import all_ops
from pockengine.compiler.passes.legalize import RULES
from pockengine.tests.backends.onnx.coverage import DOCUMENT, NEVER_MET, split, table


def test_the_page_has_every_op() -> None:
    _, shown, _ = split(DOCUMENT.read_text(encoding="utf-8"))
    assert shown == table(), "run python -m pockengine.tests.backends.onnx.coverage"


def test_each_op_has_one_fate() -> None:
    known = {op.name for op in all_ops()}
    assert FORMS.keys() <= known
    assert NEVER_MET.keys() <= known
    assert not NEVER_MET.keys() & (FORMS.keys() | RULES.keys())
