"""The C function that computes prepared forms of frozen tensors."""

from collections.abc import Iterator
from typing import Protocol

from pockengine.backends.native.address import address, place
from pockengine.backends.native.kernel import Kernel
from pockengine.backends.placement import Layout, form_of
from pockengine.compiler.ir import Node
from pockengine.compiler.program import Program
from pockengine.compiler.target import Choice

PREPARE = "prepare"
"""Name of the C function."""


class Writer(Protocol):
    """The interface that emits a program's kernels."""

    def kernel(self, node: Node, choice: Choice | None = None) -> Kernel:
        """Emit the kernel of a node, as chosen."""


def prepare_function(program: Program, layout: Layout, writer: Writer) -> list[str]:
    """Return the function, which calls a kernel per form; empty if there is no form."""
    if not layout.prepared:
        return []
    return [
        f"static void {PREPARE}(pe_worker *w, unsigned char *params, "
        "const unsigned char *frozen) {",
        *_calls(program, layout, writer),
        "}\n",
    ]


def _calls(program: Program, layout: Layout, writer: Writer) -> Iterator[str]:
    """Yield a call per form; the first kernel that reads a form defines how it is made."""
    made = set()
    for entry in program.entries.values():
        for node, choice in entry.choices.items():
            form = form_of(node, choice, entry)
            if form is None or form in made or choice.prepared is None:
                continue
            kernel = writer.kernel(node, choice).preparation
            assert kernel is not None
            made.add(form)
            source = place(node.operands[choice.prepared.operand], entry, layout.places)
            yield f"    {kernel.symbol}(w, {source}, {address(layout.prepared[form])}, NULL);"
