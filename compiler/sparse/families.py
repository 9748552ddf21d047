"""Model families, recognized by parameter names: their blocks and most important parameters.

The name patterns are in families.toml beside this file; this module finds them in a model.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from pockengine.errors import SchemeError

NAMES = Path(__file__).parent / "families.toml"


@dataclass(frozen=True)
class SchemeFamily:
    """One row of families.toml; `last_weights` and `last_biases` are shares of the blocks."""

    name: str
    block: str
    weights: tuple[str, ...]
    biases: tuple[str, ...]
    head: tuple[str, ...]
    last_weights: tuple[int, int]
    last_biases: tuple[int, int]

    def block_of(self, name: str) -> str | None:
        """Return the name of a parameter's block, if it is in one."""
        numbered = re.escape(self.block).replace(r"\#", r"\d+")
        found = re.match(rf"(?:.*?\.)?{numbered}(?=\.)", name)
        return found[0] if found else None

    def is_weight(self, name: str) -> bool:
        """Whether a parameter is one of a block's most important weights."""
        block = self.block_of(name)
        return block is not None and _matches(name.removeprefix(f"{block}."), self.weights)

    def is_bias(self, name: str) -> bool:
        """Whether a parameter is a bias, or takes the role of one."""
        return _matches(name, self.biases)

    def is_head(self, name: str) -> bool:
        """Whether a parameter belongs to the head."""
        return self.block_of(name) is None and _matches(name, self.head)


@dataclass(frozen=True)
class Recognized:
    """A model's parameters in forward order, and its family's blocks."""

    family: SchemeFamily
    names: tuple[str, ...]
    blocks: tuple[str, ...]

    @property
    def head(self) -> list[str]:
        """Names of the head's parameters."""
        return [name for name in self.names if self.family.is_head(name)]

    @property
    def biases(self) -> list[str]:
        """Names of all biases, or of parameters in their role."""
        return [name for name in self.names if self.family.is_bias(name)]

    def sparse(self) -> list[str]:
        """Names of the parameters that the paper's pattern trains, including the head."""
        weights = self._last(self.family.last_weights)
        return self._pattern(weights, self._last(self.family.last_biases)[0])

    def sparse_between(self, first: int, last: int) -> list[str]:
        """Names of the pattern with weights of these blocks, and biases from there to the end."""
        weights = self.blocks[first : last + 1]
        return self._pattern(weights, weights[0])

    def _pattern(self, weights: Sequence[str], first: str) -> list[str]:
        """Names of the weights of some blocks, of biases from a block on, and of the head."""
        begin = next(i for i, name in enumerate(self.names) if self.family.block_of(name) == first)
        chosen = {
            name
            for place, name in enumerate(self.names)
            if (self.family.is_weight(name) and self.family.block_of(name) in weights)
            or (self.family.is_bias(name) and place >= begin)
        }
        chosen |= set(self.head)
        return [name for name in self.names if name in chosen]

    def _last(self, share: tuple[int, int]) -> Sequence[str]:
        """Return the last blocks: a share of them, rounded up."""
        count = -(-len(self.blocks) * share[0] // share[1])
        return self.blocks[len(self.blocks) - count :]


@cache
def known_families() -> tuple[SchemeFamily, ...]:
    """Read families.toml."""
    table = tomllib.loads(NAMES.read_text(encoding="utf-8"))
    return tuple(
        SchemeFamily(
            name,
            row["block"],
            *(tuple(row[part]) for part in ("weights", "biases", "head")),
            *(tuple(table["kinds"][row["kind"]][part]) for part in ("weights", "biases")),
        )
        for name, row in table["families"].items()
    )


def recognize(names: Sequence[str]) -> Recognized | None:
    """Return the family with the most matching blocks; None if no family matches.

    `names` are the parameters in forward order. Ties go to the family with more matching weights.
    """
    found: Recognized | None = None
    most = (0, 0)
    for family in known_families():
        blocks = [family.block_of(name) for name in names if family.is_weight(name)]
        ordered = tuple(dict.fromkeys(block for block in blocks if block is not None))
        if (len(ordered), len(blocks)) > most:
            most = (len(ordered), len(blocks))
            found = Recognized(family, tuple(names), ordered)
    return found


def unknown_family(scheme: str, names: Sequence[str]) -> SchemeError:
    """List a model's parameter names, and the patterns that would be recognized."""
    numbered = list(dict.fromkeys(re.sub(r"\d+", "#", name) for name in names))
    known = ", ".join(f"{family.name} ({family.block})" for family in known_families())
    return SchemeError(
        f"scheme {scheme}: no known family of models has parameters called "
        f"{', '.join(numbered[:6])}{'...' if len(numbered) > 6 else ''}; known are {known}. "
        "Name what trains in a scheme file, or use last-N-blocks"
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
