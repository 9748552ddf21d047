"""The blocks of a model, by the names of its parameters in forward order.

Blocks of a known family are named in families.toml. Of other models a block is the first numbered
module of a path (`stem.3`), or a numbered module of a numbered stage (`stages.2.blocks.5`). A
module without a number is a block of its own (`fc`), and all of a last `head` is the head, with a
second head beside it. A norm outside of blocks belongs to the layer before it, or behind the last
block to the head.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Self

from pockengine.compiler.sparse.families import Recognized

HEAD = " head"
"""Key of the head among the names of blocks."""

HEADS = {"head", "heads", "head_dist", "aux_head"}
"""Modules that are the head together; those beside `head` are timm's of distilled nets and VOLO."""

REACH = 3
"""Number of leading parts of a path of which one has the number of a block."""

STAGES = ("stages", "stage", "levels", "level", "blocks")
"""Modules whose numbered children are stages, if these have numbered children too."""

NUMBERED_STAGES = ("stage#", "s#", "level#", "denseblock#")
"""The same for names with their number, such as in `s4.b2` and `denseblock4.denselayer16`."""

GROUPS = {"blocks", "layers", "units"}
"""Modules between a stage and its blocks."""

Path = tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Parameters of a block; `layer`: it is one module without others inside, or the head."""

    names: tuple[str, ...]
    layer: bool

    def __add__(self, other: "Block") -> "Block":
        """Return one block of two layers."""
        return Block((*self.names, *other.names), layer=True)


def group_blocks(
    names: Sequence[str], family: Recognized | None, vectors: Collection[str]
) -> list[list[str]]:
    """Return the names of each block, the head last; `vectors` have at most one dimension."""
    modules = {name: path_of(name)[:-1] for name in names}
    is_head = _head_rule(modules, family)
    numbers = _Numbers.of(modules.values())
    groups: dict[str, list[str]] = {}
    for name, module in modules.items():
        known = family.family.block_of(name) if family is not None else None
        key = HEAD if is_head[name] else known or ".".join(numbers.block(module))
        groups.setdefault(key, []).append(name)
    head = groups.pop(HEAD, None)
    blocks = [
        Block(tuple(inside), layer=all(".".join(modules[name]) == key for name in inside))
        for key, inside in groups.items()
    ]
    blocks += [Block(tuple(head), layer=True)] if head else []
    return [list(block.names) for block in _with_norms(blocks, vectors)]


def path_of(name: str) -> Path:
    """Split a name into its parts; Keras and Haiku separate them by slashes."""
    return tuple(re.split(r"[./]", name))


def _head_rule(modules: Mapping[str, Path], family: Recognized | None) -> dict[str, bool]:
    """Return whether each parameter belongs to the head by its name."""
    if family is not None:
        return {name: family.family.is_head(name) for name in modules}
    columns = zip(*modules.values(), strict=False)
    wrappers = len([*takewhile(lambda column: len(set(column)) == 1, columns)])
    named = {
        name: not HEADS.isdisjoint(path[wrappers : wrappers + 1]) for name, path in modules.items()
    }
    ends = bool(named) and [*named.values()][-1]
    return {name: ends and inside for name, inside in named.items()}


@dataclass(frozen=True)
class _Numbers:
    """Modules that are numbered among their siblings, such as `b2` beside `b1`.

    `flat` are modules with a numbered layer directly inside: a block, and no stage of blocks.
    """

    lettered: set[Path]
    flat: set[Path]

    @classmethod
    def of(cls, modules: Collection[Path]) -> Self:
        """Find those among the paths of all layers."""
        siblings: dict[Path, set[str]] = {}
        for module in modules:
            for place, part in enumerate(module[:-1]):
                siblings.setdefault((*module[:place], _pattern(part)), set()).add(part)
        lettered = {
            (*kind[:-1], part)
            for kind, parts in siblings.items()
            for part in parts
            if len(parts) > 1 and "#" in kind[-1]
        }
        return cls(lettered, {module[:-1] for module in modules if module and module[-1].isdigit()})

    def block(self, module: Path) -> Path:
        """Return the path of a layer's block."""
        for end, part in enumerate(module[:REACH], 1):
            if part.isdigit():
                staged = end > 1 and module[end - 2] in STAGES
            elif module[:end] in self.lettered:
                staged = _pattern(part) in NUMBERED_STAGES or module[end].isdigit()
            else:
                continue
            return self._inside(module, end) if staged else module[:end]
        return module

    def _inside(self, module: Path, end: int) -> Path:
        """Return the block within a stage, which is the first `end` parts of a layer's path."""
        start = end + (not GROUPS.isdisjoint(module[end : end + 1]))
        inner = module[: start + 1]
        numbered = inner in self.lettered or inner[-1].isdigit()
        deep = len(module) > start + 1 and module[:start] not in self.flat
        return inner if numbered and deep else module[:end]


def _pattern(part: str) -> str:
    return re.sub(r"\d+[a-z]*", "#", part)


def _with_norms(blocks: Sequence[Block], vectors: Collection[str]) -> list[Block]:
    """Join norms outside of blocks with a layer beside them, first with that before them."""

    def is_norm(block: Block) -> bool:
        return block.layer and all(name in vectors for name in block.names)

    joined: list[Block] = []
    for block in blocks:
        if joined and joined[-1].layer and block is not blocks[-1] and is_norm(block):
            joined[-1] += block
        else:
            joined.append(block)
    found: list[Block] = []
    for block in reversed(joined):
        if found and found[-1].layer and is_norm(block):
            found[-1] = block + found[-1]
        else:
            found.append(block)
    return found[::-1]
