"""Damage files: cut, repeat or replace bytes, and insert tokens that confuse parsers."""

import random

WORDS = (
    b"",
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"NaN",
    b"Infinity",
    b"-inf",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"9223372036854775808",
    b"1" + b"0" * 5000,
    b"0x1" + b"0" * 5000,
    b"[" * 3000,
    b"{" * 3000,
    b"(" * 3000,
    b'{"a":' * 2000,
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"'''",
    b'"""',
    b"\n",
    b"[[",
    b"]]",
    b"../../x",
    b"%s%n",
    b"__metadata__",
)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return the data with a few damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((0, 1, 1, 2, 4, 8, 64)))
        kind = rng.randrange(6)
        if kind == 0:
            data = data[:start]
        elif kind == 1:
            data = data[:start] + data[stop:]
        elif kind == 2:
            data = data[:start] + rng.choice(WORDS) + data[stop:]
        elif kind == 3:
            data = data[:stop] + data[start:stop] + data[stop:]
        elif kind == 4:
            data = data[:start] + rng.randbytes(stop - start) + data[stop:]
        else:
            data = _change_digit(data, rng)
    return data


def _change_digit(data: bytes, rng: random.Random) -> bytes:
    """Replace a digit, as sizes and offsets are written in digits."""
    places = [place for place, byte in enumerate(data[:100_000]) if 48 <= byte < 58]
    if not places:
        return data
    place = rng.choice(places)
    return data[:place] + rng.choice((b"-", b"9", b"0", b"", b"99999999999")) + data[place + 1 :]
