"""All compilation options, besides the model, its example inputs and its loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

from pockengine.arguments import with_keywords
from pockengine.backends.protocol import BackendOptions
from pockengine.compiler.option import option
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.passes.forward.add_noise import EmbeddingNoise
from pockengine.compiler.quantize.int8 import Int8
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.storage import Storage
from pockengine.devices import Device


class CompileKeywords(TypedDict, total=False):
    """The fields of CompileOptions as keywords of `pockengine.compile`, for type checkers.

    `integers` is not a keyword: `quantize` sets it for the model's framework.
    """

    scheme: Scheme | str | Path
    optimizer: Any
    clip: Clip | None
    micro_batches: int
    memory_budget: int | None
    solver_seconds: float
    storage: Storage
    outputs: tuple[str, ...] | None
    noise: EmbeddingNoise | None
    bf16: bool
    tuned: Path | str | None
    prepare: bool
    device: Device | str | Path
    backend: str | None
    sizes: Range | None
    quantize: Int8 | None
    check: bool


@dataclass(frozen=True)
class CompileOptions(Training, BackendOptions):
    """Training (`Training`), kernels (`BackendOptions`), device, and sizes.

    `optimizer` is PockEngine's, the model's framework's, or a name. `backend` is one that the
    device supports, by default its own; "auto" tries them. With `sizes` one dimension of the inputs
    may vary. `quantize` trains in int8. `check` compares a first step with the framework's own.
    The pages of docs/howto explain them.
    """

    device: Device | str | Path = option("host", "A name listed by `devices`, or a file.")
    backend: str | None = option(
        None, "One that the device supports; auto tries all. Default: the device's."
    )
    sizes: Range | None = option(None)
    quantize: Int8 | None = option(None)
    check: bool = option(False, "Compare a step with the framework's own.")

    def replaced(self, **keywords: Unpack[CompileKeywords]) -> Self:
        """Return options with other values; ArgumentError for an unknown name or a wrong type.

        None for `optimizer` or `clip` keeps the present value.
        """
        values = {
            name: value
            for name, value in keywords.items()
            if value is not None or name not in ("optimizer", "clip")
        }
        return with_keywords("compile", self, values, CompileKeywords)


# A name or a framework's optimizer is converted later; until then the field may hold them.
CompileOptions.__init__.__annotations__["optimizer"] = Any
