"""Select the schemes that fit a small device, before building or booting anything."""

from collections.abc import Sequence

from pockengine.devices import load_device
from pockengine.errors import CapacityError, FarmError, PockEngineError
from pockengine.farm.bench.case import Case, make_case
from pockengine.farm.bench.integers import kinds
from pockengine.farm.bench.result import F32, INT8, BenchOptions, titled
from pockengine.farm.bench.schemes import SPARSE, name_of
from pockengine.farm.progress import step

SMALLEST = "head-only"
"""The preset that takes the least memory of a step."""


def how_to_train(options: BenchOptions) -> list[tuple[str, str]]:
    """Return the schemes with their dtypes, in order; FarmError for int8 on this machine."""
    dtypes = [INT8 if int8 else F32 for int8 in kinds(options.int8, options.board)]
    return [(scheme, dtype) for scheme in options.schemes for dtype in dtypes]


def without_room(case: Case, options: BenchOptions) -> dict[tuple[str, str], str]:
    """Return why schemes do not fit, by scheme and dtype; FarmError, with options, if none does.

    Only for devices without files, whose memory limits the program.
    """
    device, plans = options.board.device, how_to_train(options)
    if not load_device(device).freestanding:
        return {}
    with step(f"plan for {device}"):
        lacking = {plan: why for plan in plans if (why := _lacking(case, plan, device)) is not None}
    if len(lacking) < len(plans):
        return lacking
    lines = [f"{titled(name_of(scheme), dtype)}: {why}" for (scheme, dtype), why in lacking.items()]
    raise FarmError(
        "\n".join([f"no scheme of {options.model}, batch {options.batch}, fits {device}", *lines])
        + f"\n{_what_fits(options)}"
    )


def _what_fits(options: BenchOptions) -> str:
    """Name options that fit, by planning them."""
    device, model = options.board.device, options.model
    schemes = tuple(dict.fromkeys((*options.schemes, SPARSE, SMALLEST)))
    here = options.int8, options.batch
    for int8, batch in dict.fromkeys((here, (options.int8, 1), (True, options.batch), (True, 1))):
        flags = f"--int8 --batch={batch}" if int8 else f"--batch={batch}"
        tried = [x for x in schemes if (int8, batch) != here or x not in options.schemes]
        with step(f"plan for {device}: {flags}"):
            found = _first_that_fits(
                model, batch, device, dtype=INT8 if int8 else F32, schemes=tried
            )
        if found is not None:
            return f"This fits: {flags} --scheme={found}"
    return "Nor does anything in int8 with a batch of 1: take a smaller model (`pockengine models`)"


def _first_that_fits(
    model: str, batch: int, device: str, dtype: str, schemes: Sequence[str]
) -> str | None:
    """Return the first scheme that fits; None for a batch that the model does not train with."""
    try:
        case = make_case(model, batch, 1)
    except PockEngineError:
        return None
    return next((x for x in schemes if _lacking(case, (x, dtype), device) is None), None)


def _lacking(case: Case, plan: tuple[str, str], device: str) -> str | None:
    """Return why a step does not fit, or None."""
    scheme, dtype = plan
    try:
        case.plan(scheme, device, dtype == INT8)
    except CapacityError as error:
        return str(error)
    return None
