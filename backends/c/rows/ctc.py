"""Kernels of connectionist temporal classification: runtime/kernels/ctc.inc.h, one sample at a
time.
"""

from pockengine.backends.c.family import KernelFamily, plain_choice
from pockengine.backends.c.options import KernelOptions
from pockengine.backends.native.kernel import SYMBOL, Kernel, define_kernel, read, write
from pockengine.backends.native.scalars import c_scalar
from pockengine.compiler.ir import Node
from pockengine.compiler.ops import lookup
from pockengine.compiler.target import Choice
from pockengine.devices.schema import Device


def choose_ctc(node: Node, device: Device, options: KernelOptions) -> Choice:
    """Allocate each sample's scratch doubles for its frames and rows, as the template requires."""
    frames, samples, _ = node.operands[0].shape
    places = 2 * node.operands[1].shape[1] + 1
    rows = frames + 1 if _is_gradient(node) else 1
    return plain_choice(node, device, scratch_bytes=8 * samples * (frames + rows * places))


def emit_ctc(node: Node, choice: Choice, device: Device) -> Kernel:
    """Emit the losses or their gradient."""
    names = lookup(node.op).operands
    frames, samples, classes = node.operands[0].shape
    labels, lengths, label_lengths = node.operands[1:4]
    macros = {
        "PE_FN(name)": f"PE_JOIN({SYMBOL}_, name)",
        "PE_FRAMES": frames,
        "PE_SAMPLES": samples,
        "PE_CLASSES": classes,
        "PE_LABELS": labels.shape[1],
        "PE_BLANK": node.attrs["blank"],
        "PE_LABEL": c_scalar(labels.dtype).ctype,
        "PE_LENGTH": c_scalar(lengths.dtype).ctype,
        "PE_LABEL_LENGTH": c_scalar(label_lengths.dtype).ctype,
        "PE_GRADIENT": int(_is_gradient(node)),
    }
    parameters = [read(name, value) for name, value in zip(names, node.operands, strict=True)]
    parameters.append(write("y", node.result))
    arguments = ["w", *names, *([] if _is_gradient(node) else ["NULL"]), "y", "scratch"]
    prelude = [
        f"/* {node.op} of [{frames},{samples},{classes}] by {labels.shape[1]} labels */",
        *(f"#define {name} {value}" for name, value in macros.items()),
        '#include "kernels/ctc.inc.h"',
    ]
    return define_kernel(
        name=f"pe_f32_{node.op}_{frames}x{samples}x{classes}",
        isa=device.cpu.isa,
        parameters=parameters,
        body=[f"{SYMBOL}_run({', '.join(arguments)});"],
        prelude="\n".join(prelude),
        scratch_bytes=choice.scratch_bytes,
    )


def _is_gradient(node: Node) -> bool:
    return node.op == "ctc_loss_dx"


CTC = KernelFamily(choose_ctc, emit_ctc)
