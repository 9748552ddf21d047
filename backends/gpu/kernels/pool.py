"""Kernels of pooling and its gradients: one item per element, looping over taps.

A gradient visits the windows that contain its pixel; for maxima it recomputes each window's
position.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pockengine.backends.gpu.kernel import SYMBOL, GpuKernel, Parameter, define_kernel, over
from pockengine.backends.gpu.kernels.product import gradient_place, image_place
from pockengine.backends.window import ConvWindow
from pockengine.compiler.ir import Node


def pool_kernel(node: Node) -> GpuKernel:
    """Emit one of OPS."""
    pool = _Pool(window_of_pool(node), bool(node.attrs.get("count_include_pad", False)))
    lines, helpers = OPS[node.op](pool)
    operands = [Parameter("float", f"x{place}") for place in range(len(node.operands))]
    parameters = [*operands, Parameter("float", "y", written=True)]
    return define_kernel(node.op, parameters, [over(node.result.type.size, lines, helpers)])


def window_of_pool(node: Node) -> ConvWindow:
    """Read the shapes of a pooling or its gradient as a depthwise window."""
    if node.op.endswith("_dx"):
        x, y = node.result.shape, node.operands[-1].shape
    else:
        x, y = node.operands[0].shape, node.result.shape
    return ConvWindow(
        images=x[0],
        size=(x[1], x[2]),
        channels=x[3],
        kernel=tuple(node.attrs["kernel"]),
        output=(y[1], y[2]),
        features=x[3],
        stride=tuple(node.attrs["stride"]),
        padding=tuple(node.attrs["padding"]),
        dilation=tuple(node.attrs.get("dilation", (1, 1))),
        groups=x[3],
    )


@dataclass(frozen=True)
class _Pool:
    window: ConvWindow
    whole: bool  # averages are over all taps, padding too

    @property
    def loop(self) -> str:
        return f"for (int tap = 0; tap < {self.window.taps}; tap++) {{"

    @property
    def own(self) -> str:
        return f"const int pixel = i / {self.window.channels}, c = i % {self.window.channels};"

    def at(self) -> str:
        """Return a function: the offset in x that a tap of an output pixel reads, or -1."""
        return self._function("at", image_place)

    def back(self) -> str:
        """Return a function: the offset in y whose tap reads an image's pixel, or -1."""
        return self._function("back", gradient_place)

    def _function(self, name: str, place: Callable[..., str]) -> str:
        columns = self.window.kernel[1]
        body = place(self.window, "pixel", f"tap / {columns}", f"tap % {columns}", "c")
        return f"PE_FUNCTION int {SYMBOL}_{name}(int pixel, int tap, int c) {{\n{body}\n}}"

    def divisor(self) -> str:
        """Return a function: the number of pixels that a window averages over."""
        count = "1" if self.whole else f"({SYMBOL}_at(pixel, tap, 0) >= 0)"
        return (
            f"PE_FUNCTION float {SYMBOL}_divisor(int pixel) {{\n"
            f"    int count = 0;\n    {self.loop} count += {count}; }}\n"
            f"    (void)pixel;\n    return (float)count;\n}}"
        )


def _max(pool: _Pool) -> tuple[list[str], str]:
    lines = [
        pool.own,
        "float most = -PE_INFINITY;",
        pool.loop,
        f"    const int at = {SYMBOL}_at(pixel, tap, c);",
        "    if (at >= 0) { most = pe_maximum(most, x0[at]); }",
        "}",
        "y[i] = most;",
    ]
    return lines, pool.at()


def _max_dx(pool: _Pool) -> tuple[list[str], str]:
    channels = pool.window.channels
    best = [
        f"PE_FUNCTION int {SYMBOL}_best(PE_GLOBAL const float *x, int pixel, int c) {{",
        "    int best = -1;",
        f"    {pool.loop}",
        f"        const int at = {SYMBOL}_at(pixel, tap, c);",
        "        if (at >= 0 && (best < 0 || x[at] > x[best] || x[at] != x[at])) { best = at; }",
        "    }",
        "    return best;",
        "}",
    ]
    lines = [
        pool.own,
        "float sum = 0.0f;",
        pool.loop,
        f"    const int to = {SYMBOL}_back(pixel, tap, c);",
        f"    if (to >= 0 && {SYMBOL}_best(x0, to / {channels}, c) == i) {{ sum += x1[to]; }}",
        "}",
        "y[i] = sum;",
    ]
    return lines, "\n".join([pool.at(), pool.back(), *best])


def _average(pool: _Pool) -> tuple[list[str], str]:
    lines = [
        pool.own,
        "float sum = 0.0f;",
        pool.loop,
        f"    const int at = {SYMBOL}_at(pixel, tap, c);",
        "    sum += at < 0 ? 0.0f : x0[at];",
        "}",
        f"y[i] = sum / {SYMBOL}_divisor(pixel);",
    ]
    return lines, f"{pool.at()}\n{pool.divisor()}"


def _average_dx(pool: _Pool) -> tuple[list[str], str]:
    share = f"x0[to] / {SYMBOL}_divisor(to / {pool.window.channels})"
    lines = [
        pool.own,
        "float sum = 0.0f;",
        pool.loop,
        f"    const int to = {SYMBOL}_back(pixel, tap, c);",
        f"    sum += to < 0 ? 0.0f : {share};",
        "}",
        "y[i] = sum;",
    ]
    return lines, f"{pool.at()}\n{pool.back()}\n{pool.divisor()}"


OPS: dict[str, Callable[[_Pool], tuple[list[str], str]]] = {
    "max_pool2d": _max,
    "max_pool2d_dx": _max_dx,
    "avg_pool2d": _average,
    "avg_pool2d_dx": _average_dx,
}
"""Statements that compute element i, and the functions they call."""
