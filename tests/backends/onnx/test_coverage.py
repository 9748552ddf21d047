"""docs/reference/ops/onnx.md lists the support of every op."""

from pockengine.tests.backends.onnx.coverage import COVERAGE


def test_the_page_lists_every_op() -> None:
    COVERAGE.check()
