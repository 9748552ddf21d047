"""Amounts with units on the command line: bytes, milliseconds, counts."""

import re
from collections.abc import Mapping
from math import ceil

import click

BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
COUNTS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def size(text: str) -> float:
    """Parse bytes: 250KB, 2MiB."""
    return _amount(text, BYTES)


def budget(text: str) -> int:
    """Parse whole bytes; a bare number is bytes: 400KB, 2MiB, 400000."""
    return ceil(_amount(text, {**BYTES, "": 1}))


def time(text: str) -> float:
    """Parse milliseconds: 20ms, 0.5s."""
    return _amount(text, MILLISECONDS)


def count(text: str) -> float:
    """Parse a count: 30M, 1.5G, 200000."""
    return _amount(text, COUNTS)


def _amount(text: str, units: Mapping[str, float]) -> float:
    """Return a positive number in the unit of factor 1; units are case-insensitive."""
    factors = {unit.lower(): factor for unit, factor in units.items()}
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in factors:
        known = ", ".join(unit or "no unit" for unit in units)
        raise click.BadParameter(f"{text!r} is no number with {known}")
    amount = float(match[1]) * factors[match[2]]
    if amount <= 0:
        raise click.BadParameter(f"{text!r} must be more than 0")
    return amount
