"""How one parameter trains, and its form in a scheme file.

    "frozen", "full"                          nothing of it, all of it
    0.25                                      the first quarter of its channels
    [0, 32]                                   channels 0 to 31
    { share = 0.25, by = "magnitude" }        the quarter that `by` ranks first: CRITERIA
    { share = 0.25, by = "random", seed = 3 }
    { channels = [1, 5, 7] }                  these channels
    { lora = 8, alpha = 16 }                  frozen, beside a trained product of rank 8: lora.py
    { lora = 8, alpha = 16, dora = true }     the same with magnitudes (dora.py); rslora = true

An inline table is identified by its first key, its row in TABLES, which reads and writes it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pockengine.compiler.sparse.channels import CRITERIA, LEADING
from pockengine.errors import SchemeError

LARGEST_ALPHA = 1e30
"""Well within f32, as is the scale computed from it."""

SIMPLE = ("frozen", "full")
LORA = "lora"
VARIANTS = ("dora", "rslora")
"""Variants of an adapter, false by default."""


@dataclass(frozen=True)
class ParamChoice:
    """How one parameter trains: `kind` is frozen, full, share, range, channels or lora.

    A share trains the channels that `by` ranks first; `channels` are (start, stop) for a range,
    sorted indices for a set. An adapter has a `rank`, an `alpha` and its variants; `seed` draws its
    initial values.
    """

    kind: str
    share: float = 1.0
    channels: tuple[int, ...] = ()
    by: str = LEADING
    seed: int = 0
    rank: int = 0
    alpha: float = 0.0
    dora: bool = False
    rslora: bool = False

    def __str__(self) -> str:
        """Return the choice in the form of a scheme file."""
        return write_choice(self)


@dataclass(frozen=True)
class InlineTable:
    """One kind of inline table: its keys, its reader (None: malformed), and its writer."""

    kind: str
    words: frozenset[str]
    read: Callable[[Mapping[str, Any]], ParamChoice | None]
    write: Callable[[ParamChoice], Mapping[str, object]]
    form: str


FROZEN = ParamChoice("frozen")
FULL = ParamChoice("full")


def _is_share(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value <= 1  # type: ignore[operator]


def _read_share(table: Mapping[str, Any]) -> ParamChoice | None:
    by, seed = table.get("by", LEADING), table.get("seed", 0)
    if not _is_share(table["share"]) or by not in CRITERIA or type(seed) is not int or seed < 0:
        return None
    if "seed" in table and by != "random":
        return None
    share = float(table["share"])
    return FULL if share == 1 else ParamChoice("share", share=share, by=by, seed=seed)


def _write_share(choice: ParamChoice) -> Mapping[str, object]:
    seed = {"seed": choice.seed} if choice.by == "random" else {}
    return {"share": choice.share, "by": choice.by, **seed}


def _read_channels(table: Mapping[str, Any]) -> ParamChoice | None:
    listed = table["channels"]
    if not isinstance(listed, list) or not listed or any(type(item) is not int for item in listed):
        return None
    if min(listed) < 0 or len(set(listed)) != len(listed):
        return None
    return ParamChoice("channels", channels=tuple(sorted(listed)))


def _read_lora(table: Mapping[str, Any]) -> ParamChoice | None:
    rank, alpha, seed = table[LORA], table.get("alpha"), table.get("seed", 0)
    number = isinstance(alpha, (int, float)) and not isinstance(alpha, bool)
    if type(rank) is not int or rank < 1 or type(seed) is not int or seed < 0:
        return None
    if not number or not 0 < alpha < LARGEST_ALPHA:  # type: ignore[operator]
        return None
    variants = {name: table.get(name, False) for name in VARIANTS}
    if any(type(flag) is not bool for flag in variants.values()):
        return None
    return ParamChoice(LORA, rank=rank, alpha=float(alpha), seed=seed, **variants)  # type: ignore[arg-type]


def _write_lora(choice: ParamChoice) -> Mapping[str, object]:
    seed = {"seed": choice.seed} if choice.seed else {}
    variants = {name: True for name in VARIANTS if getattr(choice, name)}
    return {LORA: choice.rank, "alpha": choice.alpha, **seed, **variants}


TABLES: dict[str, InlineTable] = {
    "share": InlineTable(
        "share",
        frozenset({"share", "by", "seed"}),
        _read_share,
        write=_write_share,
        form=f"{{ share = 0.25, by = {' | '.join(CRITERIA)} }} (and a `seed` with random)",
    ),
    "channels": InlineTable(
        "channels",
        frozenset({"channels"}),
        _read_channels,
        write=lambda choice: {"channels": list(choice.channels)},
        form="{ channels = [1, 5, 7] }",
    ),
    LORA: InlineTable(
        LORA,
        frozenset({LORA, "alpha", "seed", *VARIANTS}),
        _read_lora,
        write=_write_lora,
        form="{ lora = 8, alpha = 16 } "
        "(rank, and what the product is scaled by: alpha / rank, above 0; dora = true, "
        "rslora = true)",
    ),
}
"""Inline tables by their identifying key."""


def parse_choice(value: Any, where: str) -> ParamChoice:
    """Turn a TOML value into a ParamChoice; SchemeError lists the possible values."""
    choice = _parsed(value)
    if choice is None:
        forms = ", ".join(table.form for table in TABLES.values())
        raise SchemeError(
            f'{where} = {value!r}: use "frozen", "full", a share between 0 and 1, '
            f"[start, stop], or {forms}"
        )
    return choice


def _parsed(value: Any) -> ParamChoice | None:
    if isinstance(value, str):
        return ParamChoice(value) if value in SIMPLE else None
    if _is_share(value):
        return FULL if value == 1 else ParamChoice("share", share=float(value))
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        return ParamChoice("range", channels=tuple(value)) if 0 <= value[0] < value[1] else None
    if isinstance(value, Mapping):
        for word, table in TABLES.items():
            if word in value:
                return table.read(value) if set(value) <= table.words else None
    return None


def write_choice(choice: ParamChoice) -> str:
    """Return the TOML value that `parse_choice` reads as this choice; the name for a simple kind.

    SchemeError for a kind without a row in TABLES.
    """
    if choice.kind in SIMPLE:
        return choice.kind
    if choice.kind == "range":
        return f"[{choice.channels[0]}, {choice.channels[1]}]"
    if choice.kind == "share" and choice.by == LEADING:
        return repr(choice.share)
    for table in TABLES.values():
        if table.kind == choice.kind:
            items = (f"{word} = {_toml(value)}" for word, value in table.write(choice).items())
            return f"{{ {', '.join(items)} }}"
    raise SchemeError(f"a choice of kind {choice.kind!r} cannot be written; know {sorted(TABLES)}")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quote(value) if isinstance(value, str) else repr(value)


def quote(text: str) -> str:
    """Return a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'
    )
