"""The reference page of the C library: each declaration of its public headers, with its comment."""

import re
from collections.abc import Iterator

from pockengine.backends.native.package import HEADERS, HOSTED_HEADERS
from pockengine.backends.native.runtime_files import runtime_file

HEAD = """# C headers

The headers in `include/` of every artifact, beside the header of its own program. Devices without
an operating system have `pe.h` and `pe_limits.h` alone. [The C library](../library.md) explains how
to use them. This page is generated from the headers.
"""
NAMES = (
    re.compile(r"^#define (\w+)", re.MULTILINE),
    re.compile(r"^} (\w+);", re.MULTILINE),
    re.compile(r"(pe_\w+)\("),
    re.compile(r"^    (PE_\w+)", re.MULTILINE),
    re.compile(r"(pe_\w+)(?:\[\])?;"),
)
"""Names of what is declared: the first pattern that matches gives them."""
PLUMBING = re.compile(
    r'extern "C" \{\n|^\}\n|^#(if|ifdef|ifndef|else|endif|include|pragma|error|undef)\b.*\n'
    r"|^#define PE(_\w+)?_H\n|^struct \w+;\n",
    re.MULTILINE,
)


def header_page() -> str:
    """Return the page: a part for each header, a section for each declaration."""
    parts = [HEAD]
    for header in (*HEADERS, *HOSTED_HEADERS):
        text = runtime_file(header).read_text(encoding="utf-8")
        first, _, code = text.partition("#ifndef")
        parts += [f"## {header}\n", _words(first), *_sections("#ifndef" + code)]
    return "\n".join(parts)


def declared(code: str) -> list[str]:
    """Return the names that a piece of a header declares."""
    outside = re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)
    found = (pattern.findall(outside) for pattern in NAMES)
    return list(dict.fromkeys(next(filter(None, found), [])))


def _sections(text: str) -> Iterator[str]:
    """Yield a section for each comment and what it stands before."""
    text = re.sub(r"/\* state_text\.py: \w+ \*/\n", "", PLUMBING.sub("", text))
    for words, code in _pieces(text):
        shown = _prototype(code.strip())
        names = declared(shown)
        if names:
            yield f"### {', '.join(names[:3])}\n\n{words}\n```c\n{shown}\n```\n"


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield comments in the first column, with the declarations after them."""
    words = ""
    for block in re.split(r"\n\s*\n", text):
        match = re.match(r"\s*(/\*.*?\*/)\n?", block, re.DOTALL)
        if match:
            words, block = _words(match[1]), block[match.end() :]
        if block.strip():
            yield words, block
            words = ""


def _prototype(code: str) -> str:
    """Return the declaration of an inline function without its body."""
    if code.startswith("static inline"):
        return code.partition(" {\n")[0].removeprefix("static inline ") + ";"
    return code


def _words(comment: str) -> str:
    """Return a comment as Markdown."""
    inside = comment.strip().removeprefix("/*").removesuffix("*/")
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in inside.split("\n")]
    text = [
        line if line.startswith("    ") else re.sub(r"([*<])", r"\\\1", line.strip())
        for line in lines
    ]
    return "\n".join(text).strip() + "\n"
