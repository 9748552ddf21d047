"""Attention and its gradients, by groups that process a 64 x 64 tile of scores at a time."""

from pockengine.backends.gpu.kernel import GpuKernel, Parameter, Stage, define_kernel, read, write
from pockengine.backends.gpu.places import strided
from pockengine.backends.gpu.scalars import literal
from pockengine.backends.space import broadcast_strides
from pockengine.compiler.ir import BOOL, F32, Node, Value
from pockengine.compiler.ops import lookup
from pockengine.compiler.ops.attention import GRADIENTS, scores_shape
from pockengine.errors import CompileError

SIDE = 64
"""Rows and columns of a tile of scores."""

LONGEST = 256
"""Maximum size of a query, key or value: the part of a result that an item keeps in registers."""

ITEMS = 256

OPS = ("attention", *GRADIENTS)

MIXES = {
    "attention_dq": ("0", "k", "keys", "columns", "PE_GROUPS", "PE_SIZE"),
    "attention_dk": ("1", "q", "queries", "rows", "PE_HEADS", "PE_SIZE"),
    "attention_dv": ("1", "dy", "queries", "rows", "PE_HEADS", "PE_WIDTH"),
}
"""Operands of each gradient's product with a tile of softmax, transposed or not: see
PE_TILE_MIX.
"""


def attention_kernel(node: Node) -> GpuKernel:
    """Emit attention, or one of its gradients."""
    forward = node.op == "attention"
    q, _, v = node.operands[:3] if forward else node.operands[1:4]
    mask = node.operands[3:] if forward else node.operands[6:]
    macros = _macros(node, q, v, mask)
    if forward:
        batch, rows, heads = q.shape[:3]
        stage = Stage(batch * heads * _tiles(rows), ITEMS, macros, template="attention.inc.h")
        return define_kernel(node.op, _parameters(node, ("y", "stats")), [stage])
    result = node.result.shape
    macros |= {
        "PE_GRADIENT": GRADIENTS.index(node.op),
        "PE_DX_SIZE": result[3],
        "PE_DX_MIX(queries, keys, rows, columns)": _mix(*MIXES[node.op]),
    }
    groups = result[0] * result[2] * _tiles(result[1])
    stage = Stage(groups, ITEMS, macros, template="attention_dx.inc.h")
    return define_kernel(node.op, _parameters(node, ("dx",)), [stage])


def _mix(transposed: str, values: str, place: str, count: str, heads: str, size: str) -> str:
    first, step = f"{values} + {place} * {size}", f"{heads} * {size}"
    return f"PE_TILE_MIX(out, {transposed}, {first}, {step}, {count}, {size})"


def _tiles(length: int) -> int:
    return -(-length // SIDE)


def _parameters(node: Node, results: tuple[str, ...]) -> list[Parameter]:
    names = zip(lookup(node.op).operands, node.operands, strict=False)  # a mask may be absent
    written = zip(results, node.results, strict=True)
    return [*(read(*each) for each in names), *(write(*each) for each in written)]


def _macros(node: Node, q: Value, v: Value, mask: tuple[Value, ...]) -> dict[str, object]:
    _, rows, heads, size = q.shape
    _, columns, groups, width = v.shape
    if max(size, width) > LONGEST:
        raise CompileError(
            f"{node}: the GPU backend has no attention of {max(size, width)} numbers a head; it "
            f"has {LONGEST}"
        )
    hidden, causal = node.attrs["hidden"], node.attrs["causal"]
    skips = causal and hidden == -float("inf")
    return {
        "PE_HEADS": heads,
        "PE_GROUPS": groups,
        "PE_ROWS": rows,
        "PE_COLUMNS": columns,
        "PE_SIZE": size,
        "PE_WIDTH": width,
        "PE_SCALE": literal(node.attrs["scale"], F32),
        "PE_HIDDEN": literal(hidden, F32),
        "PE_STOP(row)": f"((row) < {columns} ? (row) : {columns})" if skips else columns,
        "PE_START(column)": "(column)" if skips else 0,
        **_mask(mask, scores_shape(q.type, v.type), causal=causal),
    }


def _mask(mask: tuple[Value, ...], scores: tuple[int, ...], *, causal: bool) -> dict[str, object]:
    """Return the visibility of scores, and the transform from product to score."""
    seen, added = ["(column) <= (row)"] if causal else [], ""
    for value in mask:
        strides = broadcast_strides(value.shape, scores)
        lead = strided("(head)", scores[:2], strides[:2])
        number = f"mask[{lead} + (row) * {strides[2]} + (column) * {strides[3]}]"
        if value.dtype is BOOL:
            seen.append(number)
        else:
            added = f" + {number}"
    score = f"((sum) * PE_SCALE{added})"
    return {
        "PE_SEEN(head, row, column)": f"({' && '.join(seen) or '1'})",
        "PE_SCORE(sum, head, row, column)": f"(PE_SEEN(head, row, column) ? {score} : PE_HIDDEN)"
        if seen
        else score,
    }
