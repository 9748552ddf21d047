"""Rewrite a kernel of the dialect from C to Slang, which differs in its pointers.

In Slang `T *` is an address in global memory. A parameter that points to a variable, or is an
array, becomes `inout`; a pointer to shared memory gets its own type.
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
"""Unary * and &. The dialect's format has a space after binary ones and none after unary ones."""
_WIDENED = re.compile(r"\(pe_i64\)(\w+(?:\[[^\]]*\])?)(?![\w(\[])")
"""Mesa 22.3 miscompiles comparisons of an int widened by an instruction; pe_wide uses shifts."""
_UNUSED = re.compile(r"^ *\(void\)\w+;\n", re.MULTILINE)


def slang_text(text: str) -> str:
    """Return the Slang of a text of the dialect, whose includes are already replaced."""
    text = _FUNCTION.sub(lambda found: found[1] + _parameters(found[2]) + found[3], text)
    text = _WIDENED.sub(r"pe_wide(\1)", _UNUSED.sub("", text))
    return _INDIRECT.sub("", text)


def _parameters(text: str) -> str:
    for pattern, replacement in _PARAMETERS:
        text = pattern.sub(replacement, text)
    return text
