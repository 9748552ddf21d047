"""Cases of elementwise operators, at every edge value or pair of edge values."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from pockengine.tests.frontends.edges.arrays import ArrayCase, edges, masks, pairs, whole_pairs
from pockengine.tests.frontends.edges.hard_numbers import INF, NAN

ATEN = torch.ops.aten

UNARY = """
    abs acos acosh alias asin asinh atan atanh ceil clone contiguous cos cosh detach digamma elu erf
    erfc erfinv exp exp2 expm1 floor gelu hardsigmoid hardswish hardtanh i0 leaky_relu lgamma
    lift_fresh_copy log log10
    log1p log2 log_sigmoid logical_not mish neg positive reciprocal relu relu6 round rsqrt selu
    sigmoid sign silu sin sinh softplus special_i0e special_i1
    special_i1e sqrt square tan tanh trunc celu ones_like
    zeros_like zero
"""

BINARY = """
    atan2 copysign.Tensor fmax fmin hypot maximum minimum max.other min.other
    add.Tensor sub.Tensor rsub.Tensor mul.Tensor div.Tensor pow.Tensor_Tensor
    fmod.Tensor remainder.Tensor logical_and logical_or logaddexp logaddexp2 xlogy.Tensor
    special_xlog1py
"""

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")

NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -2.0, 4.0, 5.0, 0.3333, -3.0, 1e30, INF, -INF, NAN)

WITH_NUMBER = """
    add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar pow.Tensor_Scalar fmod.Scalar
    remainder.Scalar copysign.Scalar clamp_min clamp_max
"""

PARAMETERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "softplus of 2": lambda x: functional.softplus(x, 2.0, 5.0),
    "elu of 0.5": lambda x: functional.elu(x, 0.5),
    "celu of 2": lambda x: functional.celu(x, 2.0),
    "hardtanh of -0.5, 2": lambda x: functional.hardtanh(x, -0.5, 2.0),
    "leaky_relu of -0.5": lambda x: functional.leaky_relu(x, -0.5),
    "leaky_relu of 0": lambda x: functional.leaky_relu(x, 0.0),
    "threshold": lambda x: functional.threshold(x, 0.5, 7.0),
    "hardshrink": lambda x: functional.hardshrink(x, 0.5),
    "softshrink": lambda x: functional.softshrink(x, 0.5),
    "tanhshrink": functional.tanhshrink,
    "softsign": functional.softsign,
    "polygamma": lambda x: (torch.polygamma(0, x), torch.polygamma(1, x), torch.polygamma(2, x)),
    "igamma": lambda x: torch.special.gammainc(torch.tensor(1.5), x),
    "igammac": lambda x: torch.special.gammaincc(torch.tensor(1.5), x),
    "clamp": lambda x: x.clamp(-0.5, 2.0),
    "clamp above": lambda x: x.clamp(max=0.0),
    "clamp min > max": lambda x: x.clamp(2.0, -0.5),
    "clamp to infinity": lambda x: x.clamp(-INF, INF),
    "clamp to NaN": lambda x: x.clamp(NAN, 1.0),
    "clamp by tensors": lambda x: x.clamp(-x, x),
    "clamp tensors min > max": lambda x: torch.clamp(x, x + 1, x - 1),
    "fmax of ties": lambda x: torch.fmax(x.nan_to_num(), x.nan_to_num().abs()),
    "fmin of ties": lambda x: torch.fmin(x.nan_to_num(), x.nan_to_num().abs()),
    "nan_to_num": torch.nan_to_num,
    "nan_to_num of numbers": lambda x: torch.nan_to_num(x, 1.0, 2.0, -2.0),
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "isposinf": torch.isposinf,
    "isneginf": torch.isneginf,
    "angle": torch.angle,
    "signbit": torch.signbit,
    "sgn": torch.sgn,
    "logit": torch.logit,
    "logit of eps": lambda x: torch.logit(x, 0.1),
    "sinc": torch.sinc,
    "frac": torch.frac,
    "rad2deg": torch.rad2deg,
    "entr": torch.special.entr,
    "erfcx-free ndtr": torch.special.ndtr,
    "log_ndtr-free logistic": lambda x: torch.log(torch.sigmoid(x)),
    "relu of sum of abs": lambda x: torch.relu(x) + torch.abs(x),
    "rounded to decimals": lambda x: torch.round(x, decimals=1),
    "power of 1.5": lambda x: torch.pow(x, 1.5),
    "number to a power": lambda x: torch.pow(2.0, x),
    "zero to a power": lambda x: torch.pow(0.0, x),
    "negative to a power": lambda x: torch.pow(-2.0, x),
    "prelu": lambda x: functional.prelu(x, x[9:10].abs()),
    "masked_fill": lambda x: x.masked_fill(x > 0, -INF),
    "masked_fill tensor": lambda x: x.masked_fill(x > 0, torch.tensor(2.0)),
    "where": lambda x: torch.where(x > 1, x, x * x),
    "where numbers": lambda x: torch.where(x > 1, 1.0, 0.0) * x,
    "where other": lambda x: torch.where(x > 1, x, 0.0),
    "where self": lambda x: torch.where(x > 1, 0.0, x),
    "glu": lambda x: functional.glu(x.reshape(2, -1), 0),
    "to bool": lambda x: x.bool(),
    "as bool times x": lambda x: x.bool() * x,
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x, value=0.5),
    "lerp": lambda x: torch.lerp(x, -x, 0.25),
    "relu6 of relu": lambda x: functional.relu6(functional.relu(x)),
    "normal cdf of softplus": lambda x: functional.softplus(-x.abs()),
    "fill": lambda x: ATEN.fill.Scalar(x, 2.0) * x,
    "fill tensor": lambda x: ATEN.fill.Tensor(x, torch.tensor(2.0)) * x,
    "full_like": lambda x: torch.full_like(x, 3.0) * x,
    "new_full": lambda x: x.new_full((3,), 2.0) * x[:3],
    "new_ones": lambda x: x.new_ones((3,)) * x[:3],
    "new_zeros": lambda x: x.new_zeros((3,)) * x[:3],
}

BOOLEANS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "bool mul": lambda a, b: a * b,
    "bool not of mul": lambda a, b: ~(a * b),
    "bool add": lambda a, b: a + b,
    "bool and": lambda a, b: a & b,
    "bool or": lambda a, b: a | b,
    "bool xor": lambda a, b: a ^ b,
    "bool lt": lambda a, b: a < b,
    "bool le": lambda a, b: a <= b,
    "bool gt": lambda a, b: a > b,
    "bool ge": lambda a, b: a >= b,
    "bool eq": lambda a, b: a == b,
    "bool ne": lambda a, b: a != b,
    "bool maximum": torch.maximum,
    "bool minimum": torch.minimum,
    "bool logical": lambda a, b: (a.logical_and(b), a.logical_or(b), a.logical_xor(b), ~a),
    "bool where": lambda a, b: torch.where(a * b, a, b),
    "bool where numbers": lambda a, b: torch.where(a * b, 1.0, 2.0),
    "bool to float": lambda a, b: ((a * b).float(), (a + b).float(), (a < b).float()),
    "bool to int": lambda a, b: ((a * b).int(), (a + b).long(), (a < b).long()),
    "bool plus one": lambda a, b: (a + 1, b * 3, (a * b) + 1),
    "bool product with integers": lambda a, b: a.long() * b,
    "bool sum": lambda a, b: ((a * b).sum(), (a + b).sum(), a.sum(0, keepdim=True)),
    "bool mean": lambda a, b: (a * b).float().mean(),
    "bool any all": lambda a, b: ((a * b).any(), (a + b).all(), (a < b).any(0), (a <= b).all(0)),
    "bool prod": lambda a, b: (a.prod(), (a + b).prod()),
    "bool amax": lambda a, b: (a.amax(), (a * b).amin(), a.max(), b.min()),
    "bool max dim": lambda a, b: (*(a * b).max(0), *(a + b).min(0)),
    "bool cumsum": lambda a, b: ((a + b).cumsum(0), (a * b).cumsum(0)),
    "bool argmax": lambda a, b: ((a * b).long().argmax(), (a < b).long().argmin()),
    "bool cat": lambda a, b: (torch.cat([a * b, a + b]), torch.stack([a, a < b])),
    "bool pad": lambda a, b: functional.pad(a + b, (1, 2), value=1.0),
    "bool flip": lambda a, b: ((a * b).flip(0), (a < b)[1:3], (a + b).repeat(2)),
    "bool index": lambda a, b: ((a * b)[torch.tensor([3, 0])], (a + b).gather(0, a.long())),
    "bool expand": lambda a, b: ((a * b)[:, None].expand(4, 3), (a + b)[:, None] * b[None]),
    "bool transpose": lambda a, b: (a[:, None] * b[None]).T,
    "bool matmul": lambda a, b: (a * b).float() @ (a + b).float(),
    "bool masked_fill": lambda a, b: (a + b).masked_fill(a, False),
    "bool clamp of cast": lambda a, b: ((a + b).long() - (a * b).long()).clamp(0, 1),
    "bool scatter": lambda a, b: torch.zeros(4).scatter_add(0, (a * b).long(), (a + b).float()),
    "bool one_hot": lambda a, b: functional.one_hot((a + b).long(), 2),
    "bool comparisons of casts": lambda a, b: ((a * b).int() < b.int(), (a + b).float() > 0.5),
    "bool isfinite": lambda a, b: torch.isfinite((a + b).float() / (a * b).float()),
    "bool integer logic": lambda a, b: (a.long().logical_and(b.long()), a.long().logical_not()),
    "bool bitwise_not": lambda a, b: torch.bitwise_not(a * b),
    "bool square": lambda a, b: (a * b) ** 2,
    "bool bits": lambda a, b: (
        torch.bitwise_and(a, b),
        torch.bitwise_xor(a, b),
        a & True,
        a | False,
    ),
    "bool copy": lambda a, b: ATEN.copy.default((a + b).float(), (a * b).float()),
    "bool argmax of bool": lambda a, b: ((a * b).long().argmax(0), (a + b).long().argmin(0)),
}

INTEGERS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "int add": lambda a, b: a + b,
    "int sub": lambda a, b: a - b,
    "int mul": lambda a, b: a * b,
    "int maximum": lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)),
    "int compare": lambda a, b: (a < b, a <= b, a == b, a != b, a > b, a >= b),
    "int neg": lambda a, b: -a,
    "int square": lambda a, b: a * a,
    "int hash": lambda a, b: (a * 2654435761) % 1000,
    "int to float": lambda a, b: a.float() + b.float(),
    "int true division by number": lambda a, b: a / 7,
    "int where": lambda a, b: torch.where(a > b, a, b),
    "int clamp": lambda a, b: (a.clamp(-5, 5), a.clamp(min=0), a.clamp(max=-1)),
    "int to int32": lambda a, b: (a % 1000).int() * (b % 1000).int(),
    "int to bool": lambda a, b: (a.bool(), b.bool()),
    "int floor division by number": lambda a, b: (a // 7, a // -3, a % 7, a % -3),
    "int trunc division by number": lambda a, b: (
        torch.div(a, 7, rounding_mode="trunc"),
        torch.div(a, -3, rounding_mode="trunc"),
        torch.fmod(a, 7),
        torch.fmod(a, -3),
    ),
    "int abs": lambda a, b: torch.abs(a),
    "int sign": lambda a, b: torch.sign(a),
    "int32 wrap": lambda a, b: (a % 100000).int() * 100003,
    "int32 division": lambda a, b: ((a % 100000).int() // 7, (a % 100000).int() % -7),
    "int relu": lambda a, b: torch.relu(a),
    "int bits": lambda a, b: (a & b, a | b, a ^ b, ~a, a & -a),
    "int shift left": lambda a, b: (a << b, a << (b & 63), (a % 1000).int() << 3),
    "int shift right": lambda a, b: (a >> b, a >> (b & 63), (a % 1000).int() >> 3),
}

DIVISIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "int floor_divide": lambda a, b: a // b,
    "int remainder": lambda a, b: a % b,
    "int fmod": torch.fmod,
    "int trunc division": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}


def _overload(name: str) -> Any:
    packet, _, variant = name.partition(".")
    found = getattr(ATEN, packet)
    variant = variant or ("default" if "default" in found.overloads() else "Tensor")
    return getattr(found, variant)


def _with_number(name: str, number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    function = _overload(name)
    return lambda x: function(x, number)


def _with_mode(mode: str, *number: float) -> Callable[..., torch.Tensor]:
    return lambda *operands: torch.div(*operands, *number, rounding_mode=mode)


def elementwise_cases() -> Iterator[ArrayCase]:
    """Yield all cases of this file."""
    for name in UNARY.split():
        yield ArrayCase.of(name, _overload(name), (edges(),))
    for name, function in PARAMETERS.items():
        yield ArrayCase.of(name, function, (edges(),))
    yield from _binary_cases()
    yield ArrayCase.of("int unary", lambda a: (a.exp(), a.sqrt()), (torch.tensor([0, 1, -1, 5]),))
    for name, booleans in BOOLEANS.items():
        yield ArrayCase.of(name, booleans, masks())
    for name, integers in INTEGERS.items():
        yield ArrayCase.of(name, integers, whole_pairs())
    for name, integers in DIVISIONS.items():
        yield ArrayCase.of(name, integers, whole_pairs(zeros=False))


def _binary_cases() -> Iterator[ArrayCase]:
    for name in BINARY.split():
        yield ArrayCase.of(name, _overload(name), pairs())
    for name in COMPARISONS:
        yield ArrayCase.of(name, _overload(f"{name}.Tensor"), pairs())
        yield ArrayCase.of(f"{name}.Scalar", _with_number(f"{name}.Scalar", 0.5), (edges(),))
    for name, number in itertools.product(WITH_NUMBER.split(), NUMBERS):
        yield ArrayCase.of(f"{name} {number}", _with_number(name, number), (edges(),))
    for mode in ("floor", "trunc"):
        yield ArrayCase.of(f"div {mode}", _with_mode(mode), pairs())
        yield ArrayCase.of(f"div {mode} by 0", _with_mode(mode, 0.0), (edges(),))
        yield ArrayCase.of(f"div {mode} by 0.3", _with_mode(mode, 0.3), (edges(),))
