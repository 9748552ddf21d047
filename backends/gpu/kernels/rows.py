"""Kernels over whole rows, one group per row: softmax, norms, cross entropy."""

import math
from collections.abc import Mapping

from pockengine.backends.gpu.kernel import GpuKernel, Parameter, Stage, define_kernel, read, write
from pockengine.backends.gpu.scalars import literal
from pockengine.compiler.ir import F32, Node
from pockengine.compiler.ops import lookup

LEAST, MOST = 32, 256
"""Minimum and maximum items of a group: at least one warp."""

TEMPLATES: Mapping[str, tuple[str, tuple[str, ...], Mapping[str, object]]] = {
    "softmax": ("softmax.inc.h", ("y",), {"PE_LOGARITHM": 0}),
    "log_softmax": ("softmax.inc.h", ("y",), {"PE_LOGARITHM": 1}),
    "layer_norm": ("row_norm.inc.h", ("y", "rstd"), {"PE_CENTERED": 1}),
    "rms_norm": ("row_norm.inc.h", ("y", "rstd"), {"PE_CENTERED": 0}),
    "layer_norm_dx": ("row_norm_dx.inc.h", ("dx",), {"PE_CENTERED": 1}),
    "rms_norm_dx": ("row_norm_dx.inc.h", ("dx",), {"PE_CENTERED": 0}),
}
"""Template, names of the results, macros."""

IN_PLACE: Mapping[str, tuple[int, ...]] = {
    "softmax": (0,),
    "log_softmax": (0,),
    "layer_norm": (0,),
    "rms_norm": (0,),
    "layer_norm_dx": (0, 1),
    "rms_norm_dx": (0, 1),
    "cross_entropy_dx": (0,),
}
"""Operands that a result may overwrite: an item writes only elements that it alone has read
before.
"""


def row_kernel(node: Node) -> GpuKernel:
    """Emit one of TEMPLATES."""
    template, results, macros = TEMPLATES[node.op]
    shape = node.operands[0].shape
    definitions = {**macros, "PE_COLUMNS": shape[-1]}
    if "eps" in node.attrs:
        definitions["PE_EPS"] = literal(node.attrs["eps"], F32)
    stage = Stage(math.prod(shape[:-1]), _items(shape[-1]), definitions, template=template)
    return define_kernel(node.op, _parameters(node, results), [stage])


def cross_entropy_kernel(node: Node) -> GpuKernel:
    """Emit cross entropy: the losses of rows, then their mean; or its gradient."""
    rows, columns = node.operands[0].shape
    macros = {
        "PE_ROWS": rows,
        "PE_COLUMNS": columns,
        "PE_IGNORED": f"({node.attrs['ignore_index']})",
    }

    def stage(number: int, groups: int, items: int) -> Stage:
        definitions = {**macros, "PE_STAGE": number}
        return Stage(groups, items, definitions, template="cross_entropy.inc.h")

    if node.op == "cross_entropy_dx":
        parameters = _parameters(node, ("dlogits",))
        return define_kernel(node.op, parameters, [stage(2, rows, _items(columns))])
    stages = [stage(0, rows, _items(columns)), stage(1, 1, _items(rows))]
    return define_kernel(node.op, _parameters(node, ("loss",)), stages, scratch_bytes=4 * rows)


def _parameters(node: Node, results: tuple[str, ...]) -> list[Parameter]:
    names = zip(lookup(node.op).operands, node.operands, strict=True)
    written = zip(results, node.results, strict=True)
    return [*(read(*each) for each in names), *(write(*each) for each in written)]


def _items(columns: int) -> int:
    return max(LEAST, min(MOST, 1 << max(0, columns - 1).bit_length()))
