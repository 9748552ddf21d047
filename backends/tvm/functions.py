"""Signatures of a built library's functions, as a JSON file.

Constants in the ONNX backend's file are a function's last arguments: a session may replace frozen
weights, and all entries share one copy.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pockengine.backends.runtimes.layout import Layout
from pockengine.errors import ArtifactError, reason_of

FUNCTIONS = "functions.json"


@dataclass(frozen=True)
class Constant:
    """A tensor in the file of constants: offset, type and shape."""

    offset: int
    dtype: str
    shape: Layout


@dataclass(frozen=True)
class Function:
    """Names of inputs and outputs as in the ONNX model, followed by the constants."""

    inputs: tuple[str, ...]
    constants: tuple[Constant, ...]
    outputs: tuple[str, ...]


def write_functions(functions: Mapping[str, Function], folder: Path) -> None:
    """Write the file."""
    table = {name: asdict(function) for name, function in functions.items()}
    (folder / FUNCTIONS).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def read_functions(folder: Path) -> dict[str, Function]:
    """Read the file, whose hash was checked; ArtifactError if it is malformed."""
    try:
        table = json.loads((folder / FUNCTIONS).read_text(encoding="utf-8"))
        return {
            name: Function(
                tuple(row["inputs"]),
                tuple(
                    Constant(c["offset"], c["dtype"], tuple(c["shape"])) for c in row["constants"]
                ),
                tuple(row["outputs"]),
            )
            for name, row in table.items()
        }
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ArtifactError(
            f"{folder / FUNCTIONS} cannot be read: {reason_of(error)}; compile the model again"
        ) from error
