"""The dialect in Slang: what C writes with pointers to variables and to shared memory.

Slang has pointers to global memory only. A function's pointer to a variable becomes an `inout`
parameter, as does an array; a pointer to shared memory gets a type of its own.
"""

import re

_FUNCTION = re.compile(r"(PE_FUNCTION \w+ \w+\()([^)]*)(\) \{)")
_PARAMETERS = (
    (re.compile(r"PE_LOCAL (\w+) \*(\w+)"), r"PE_LOCAL(\1) \2"),
    (re.compile(r"(?:const PE_GLOBAL|PE_GLOBAL const) (\w+) \*(\w+)"), r"Ptr<\1> \2"),
    (re.compile(r"(?<!const )\b(\w+) \*(\w+)"), r"inout \1 \2"),
    (re.compile(r"\b(\w+) (\w+\[)"), r"inout \1 \2"),
)
_INDIRECT = re.compile(r"(?<=[\s(])[*&](?=[a-z])")
"""Unary * and &, which the format of the dialect writes before their operand; binary ones have a
space.
"""
_WIDENED = re.compile(r"\(pe_i64\)(\w+(?:\[[^\]]*\])?)(?![\w(\[])")
"""Mesa 22.3 compares an int wrongly that an instruction widens: pe_wide does without."""
_UNUSED = re.compile(r"^ *\(void\)\w+;\n", re.MULTILINE)


def slang_text(text: str) -> str:
    """Return a text of the dialect, without includes, in Slang."""
    text = _FUNCTION.sub(lambda found: found[1] + _parameters(found[2]) + found[3], text)
    text = _WIDENED.sub(r"pe_wide(\1)", _UNUSED.sub("", text))
    return _INDIRECT.sub("", text)


def _parameters(text: str) -> str:
    for pattern, replacement in _PARAMETERS:
        text = pattern.sub(replacement, text)
    return text
