"""The sizes of an attention, its products in a block of rows, and the scratch they need."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pockengine.backends.c.tile import Tile
from pockengine.compiler.ir import Node, Value
from pockengine.compiler.ops import lookup


@dataclass(frozen=True)
class AttentionProduct:
    """A product of a block: m rows, n columns and k steps, with row pitch `y_pitch` of results.

    `last` are the rows of the last block, `a` A's strides between rows and between steps, and
    `b_pitch` B's, which lies in memory column by column if `b_transposed`. `store` and
    `factor_step` are as in attention_store.inc.h; DOTS are sums by attention_dots.inc.h. Without
    `tile` operands are rounded to bf16, in attention_tiles.inc.h.
    """

    name: str
    m: int
    last: int
    n: int
    k: int
    a: tuple[int, int]
    b_pitch: int
    y_pitch: int
    b_transposed: bool = False
    store: str = "SUMS"
    factor_step: int = 1
    tile: Tile | None = None


@dataclass(frozen=True)
class AttentionSpec:
    """A block's rows, the pitch of its scores, and scratch, in floats.

    `keys`, `values`, `shares`, `toward`, `steps` and `operand` are the parts of each thread's
    scratch, `parts` the heads' contributions to a group's gradients. `reach` is the columns of a
    whole tile.
    """

    rows: int
    pitch: int
    reach: int
    keys: int
    values: int
    shares: int
    toward: int
    parts: int
    threads: int
    products: tuple[AttentionProduct, ...]
    steps: int = 0
    operand: int = 0

    @property
    def bf16(self) -> bool:
        """Whether the products are attention_tiles.inc.h's."""
        return not all(product.tile for product in self.products)

    @property
    def own(self) -> int:
        """Scratch of a thread."""
        return sum((self.keys, self.values, self.shares, self.toward, self.steps, self.operand))

    @property
    def scratch_bytes(self) -> int:
        """Scratch of the whole kernel."""
        return 4 * (self.own * self.threads + self.parts)


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of a node, and its gradients (none for a forward pass).

    A fusion computes gradients of the same operands.
    """

    node: Node

    @cached_property
    def members(self) -> Sequence[Node]:
        """The node, or the members of a fusion."""
        return self.node.attrs["body"].nodes if self.node.op == "fusion" else [self.node]

    @cached_property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of attention."""
        return self.members[0].attrs

    @cached_property
    def named(self) -> Mapping[str, Value]:
        """Operands by the op's names."""
        first = self.members[0]
        return dict(zip(lookup(first.op).operands, first.operands, strict=False))  # mask or none

    @cached_property
    def results(self) -> Mapping[str, Value]:
        """The kernel's results, by their names in the templates."""
        if not self.backward:
            return dict(zip(("y", "stats"), self.node.results, strict=True))
        made = {member.op.removeprefix("attention_"): member.result for member in self.members}
        if self.node.op == "fusion":
            outputs = list(self.node.attrs["body"].outputs.values())
            return {name: self.node.results[outputs.index(value)] for name, value in made.items()}
        return made

    @cached_property
    def rows(self) -> tuple[int, int, int, int]:
        """Batch, rows, heads, size."""
        batch, rows, heads, size = self.named["q"].shape
        return batch, rows, heads, size

    @cached_property
    def columns(self) -> tuple[int, int, int]:
        """Columns, groups, width."""
        _, columns, groups, width = self.named["v"].shape
        return columns, groups, width

    @property
    def gradients(self) -> Set[str]:
        """The gradients."""
        return self.results.keys() - {"y", "stats"}

    @property
    def backward(self) -> bool:
        """Whether the node computes gradients."""
        return self.members[0].op != "attention"

    @property
    def toward(self) -> bool:
        """Whether the gradient of the scores is needed."""
        return not self.gradients.isdisjoint({"dq", "dk"})

    @property
    def skips(self) -> bool:
        """Whether nothing above the diagonal is visible."""
        return bool(self.attrs["causal"]) and self.attrs["hidden"] == -math.inf

    @property
    def by_dots(self) -> bool:
        """Whether the scores of a forward pass are sums along rows of keys.

        For a single row this takes 0.7 to 0.9 times as long as transposing the keys, on Zen 3; for
        two and four rows as long.
        """
        return not self.backward and self.rows[1] == 1

    @property
    def shares_heads(self) -> bool:
        """Whether several heads have the same keys."""
        return self.rows[2] != self.columns[1]

    @property
    def parts(self) -> int:
        """Floats of the heads' contributions to a group's gradients before summation."""
        if not self.shares_heads:
            return 0
        (batch, _, heads, size), (columns, _, width) = self.rows, self.columns
        lengths = {"dk": size, "dv": width}
        return batch * heads * columns * sum(lengths.get(name, 0) for name in self.gradients)

    def products(self, block: int, pitch: int) -> list[AttentionProduct]:
        """Return the products of a block of rows: scores with this pitch, then those with them."""
        (_, rows, heads, size), (columns, groups, width) = self.rows, self.columns
        of_rows = partial(AttentionProduct, m=block, last=rows - (rows - 1) // block * block)
        by_scores = partial(of_rows, k=columns, a=(pitch, 1))
        scores = of_rows(
            "scores",
            n=columns,
            k=size,
            a=(heads * size, 1),
            b_pitch=groups * size,
            y_pitch=pitch,
            b_transposed=True,
        )
        if not self.backward:
            scores = replace(scores, store="DOTS") if self.by_dots else scores
            pitches = {"b_pitch": groups * width, "y_pitch": heads * width}
            return [scores, by_scores("mix", n=width, **pitches, store="SCALED")]
        found = [scores]
        if self.toward:
            a, b_pitch = (heads * width, 1), groups * width
            toward = replace(scores, name="toward", k=width, a=a, b_pitch=b_pitch)
            found.append(replace(toward, store="TOWARD", factor_step=heads))
        if "dq" in self.gradients:
            found.append(by_scores("dq", n=size, b_pitch=groups * size, y_pitch=heads * size))
        by_rows = partial(
            AttentionProduct, m=columns, last=columns, k=block, a=(1, pitch), store="ADDED"
        )
        for name, length in (("dk", size), ("dv", width)):
            if name in self.gradients:
                y_pitch = length if self.shares_heads else groups * length
                found.append(by_rows(name, n=length, b_pitch=heads * length, y_pitch=y_pitch))
        return found
