"""Linux files with one integer: a temperature, or the charge of a battery.

The runner reads the same files (`runtime/runner/pe_runner_gauge.c`).
"""

from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import RuntimeFailure

_NUMBER_BYTES = 32


@dataclass(frozen=True)
class Quantity:
    """A quantity in such a file: `scale` is the number per unit; values outside `least` to `most`
    are invalid.

    `argument` names the option for a file; without it the first below `folder` that matches
    `pattern` is used.
    """

    name: str
    unit: str
    argument: str
    scale: int
    least: int
    most: int
    folder: Path
    pattern: str


TEMPERATURE = Quantity(
    "temperature",
    "C",
    "thermal",
    scale=1000,
    least=-100,
    most=300,
    folder=Path("/sys/class/thermal"),
    pattern="thermal_zone*/temp",
)
CHARGE = Quantity(
    "charge",
    "%",
    "battery",
    scale=1,
    least=0,
    most=100,
    folder=Path("/sys/class/power_supply"),
    pattern="*/capacity",
)


def read(quantity: Quantity, path: Path) -> float:
    """Return the present value in units; RuntimeFailure for invalid contents."""
    fix = f"name a file that has it by `{quantity.argument}`"
    try:
        if path.exists() and not path.is_file():  # opening a FIFO would block
            raise OSError("it is no regular file")
        with path.open("rb") as file:
            text = file.read(_NUMBER_BYTES)
    except OSError as error:
        problem = f"cannot read the {quantity.name} from {path}: {error.strerror or error}"
        raise RuntimeFailure(f"{problem}; {fix}") from error
    least, most = quantity.least * quantity.scale, quantity.most * quantity.scale
    number = text.strip()
    if not number.removeprefix(b"-").isdigit() or not least <= int(number) <= most:
        raise RuntimeFailure(
            f"{path} has {number.decode('ascii', 'replace')!r}, and a {quantity.name} is a whole "
            f"number from {least} to {most}; {fix}"
        )
    return int(number) / quantity.scale


def find(quantity: Quantity, preferred: Path | str | None) -> Path:
    """Return the given file, or the first, by name, that can be read.

    RuntimeFailure if there is none.
    """
    if preferred is not None:
        read(quantity, Path(preferred))
        return Path(preferred)
    for path in sorted(quantity.folder.glob(quantity.pattern)):
        try:
            read(quantity, path)
        except RuntimeFailure:
            continue
        return path
    raise RuntimeFailure(
        f"no {quantity.name} can be read below {quantity.folder}; name a file that has it by "
        f"`{quantity.argument}`"
    )
