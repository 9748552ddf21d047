"""Einstein's summation: products of tensors, summed over the letters that the result lacks.

Tensors are multiplied from the left on, two at a time, each pair as one batch of matrix products.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from pockengine.compiler.ir import F32, Builder
from pockengine.frontends import emit
from pockengine.frontends.emit.nn import Unsupported
from pockengine.frontends.layout import Tensor, framework_order, permute, plain, reshape

ELLIPSIS = "αβγδεζηθικλμνξ"
"""Letters that stand for the dimensions of an ellipsis, the last one first."""


@dataclass(frozen=True)
class _Term:
    """A tensor and a letter for each of its dimensions, no letter twice."""

    letters: str
    x: Tensor

    def size(self, letter: str) -> int:
        return self.x.shape[self.letters.index(letter)]


def einsum(g: Builder, equation: str, operands: Sequence[Tensor]) -> Tensor:
    """Apply an equation such as "bij,bjk->bik"; Unsupported for one that does not fit."""
    terms, result = _parsed(equation, operands)
    left = _diagonal(g, equation, terms[0], operands[0])
    for index in range(1, len(terms)):
        right = _diagonal(g, equation, terms[index], operands[index])
        left = _product(g, left, right, result + "".join(terms[index + 1 :]))
    left = _summed(g, left, result)
    return permute(left.x, [left.letters.index(letter) for letter in result])


def _parsed(equation: str, operands: Sequence[Tensor]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, ellipses spelled out."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise Unsupported(f"the einsum {equation!r} of {len(operands)} tensors")
    spelled, most = [], 0
    for term, x in zip(terms, operands, strict=True):
        count = x.rank - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term) or count > len(ELLIPSIS):
            raise Unsupported(f"the einsum {equation!r} of a tensor of shape {list(x.shape)}")
        most = max(most, count)
        spelled.append(term.replace("...", ELLIPSIS[:count][::-1]))
    whole = ELLIPSIS[:most][::-1]
    if arrow:
        result = result.replace("...", whole)
    else:
        letters = "".join(spelled)
        named = sorted({letter for letter in letters if letters.count(letter) == 1} - {*whole})
        result = whole + "".join(named)
    if len({*result}) != len(result) or not {*result} <= {*"".join(spelled)}:
        raise Unsupported(f"the einsum {equation!r}: its result's letters")
    return spelled, result


def _diagonal(g: Builder, equation: str, letters: str, x: Tensor) -> _Term:
    """Take the diagonal of dimensions that have the same letter."""
    for letter in letters:
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            size = x.shape[first]
            if x.shape[second] != size:
                raise Unsupported(f"the einsum {equation!r}: {letter!r} has two sizes")
            others = [dim for dim in range(x.rank) if dim not in (first, second)]
            lines = permute(x, [*others, first, second])
            lead = lines.shape[:-2]
            flat = plain(g.reshape(framework_order(g, lines), shape=(*lead, size * size)))
            x = emit.slice_dim(g, flat, -1, start=0, stop=size * size, step=size + 1)
            letters = "".join(letters[dim] for dim in others) + letter
    return _Term(letters, x)


def _summed(g: Builder, term: _Term, labels: str) -> _Term:
    """Sum over the letters that nothing reads any more."""
    gone = [dim for dim, letter in enumerate(term.letters) if letter not in labels]
    if not gone:
        return term
    letters = "".join(letter for letter in term.letters if letter in labels)
    return _Term(letters, emit.reduce(g, "reduce_sum", term.x, gone, keepdims=False))


def _product(g: Builder, left: _Term, right: _Term, labels: str) -> _Term:
    """Multiply two terms and sum over the letters that neither the result nor others need."""
    left = _summed(g, left, labels + right.letters)
    right = _summed(g, right, labels + left.letters)
    left, right = _widened(g, left, right), _widened(g, right, left)
    both = [letter for letter in left.letters if letter in right.letters]
    batch = [letter for letter in both if letter in labels]
    inner = [letter for letter in both if letter not in labels]
    rows = [letter for letter in left.letters if letter not in both]
    columns = [letter for letter in right.letters if letter not in both]
    if inner and left.x.dtype is not F32:
        raise Unsupported(f"products of matrices of {left.x.dtype.value}; cast them to float32")
    letters = batch + rows + columns
    shape = tuple(left.size(k) if k in left.letters else right.size(k) for k in letters)
    if inner:
        y = emit.matmul(
            g, _grouped(g, left, batch, rows, inner), _grouped(g, right, batch, inner, columns)
        )
    else:
        wide = _grouped(g, left, batch, rows, []), _grouped(g, right, batch, [], columns)
        y = emit.arithmetic(g, "mul", *wide)
    return _Term("".join(letters), reshape(g, y, shape))


def _widened(g: Builder, term: _Term, other: _Term) -> _Term:
    """Repeat dimensions of size 1 up to those of the other term."""
    sizes = [
        max(size, other.size(letter)) if size == 1 and letter in other.letters else size
        for letter, size in zip(term.letters, term.x.shape, strict=True)
    ]
    return _Term(term.letters, emit.broadcast(g, term.x, tuple(sizes)))


def _grouped(g: Builder, term: _Term, batch: list[str], *groups: list[str]) -> Tensor:
    """Bring the batch's dimensions first and join the others by groups."""
    order = [term.letters.index(letter) for part in (batch, *groups) for letter in part]
    lead = tuple(term.size(letter) for letter in batch)
    shape = tuple(prod(term.size(letter) for letter in group) for group in groups)
    return reshape(g, permute(term.x, order), (*lead, *shape))
