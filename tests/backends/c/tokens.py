"""The tokens of generated code, by the translation phases of the C standard.

A string is one token whatever its contents, a comment none; so two programs that differ only in
names must give the same tokens.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

from pockengine.backends.c.backend import CBackend
from pockengine.backends.native.interface import header_name, identifier, program_symbol
from pockengine.backends.native.program import generate
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import Graph
from pockengine.compiler.options import Training
from pockengine.tests.backends.c.harness import device_of

ATTACKS = (
    'w*\\ int system(const char *); void f(void) { system("id"); } /*',
    "*/ } int main(void) { return 7; } /*",
    '"); system("id"); ("',
    '\n#error "\\',
    "\\\n*/ int x; /*",
    "*\\\n/ int x; /\\\n*",
    '??/\n*/ int y; "??/',
    "??/",
    "*\\/ int z; /\\*",
    "\\",
    "/*",
    "//",
    "'\\'';",
    "%s%n%1000000d",
    "\x1b[31m\r\x07\x0b\x0c\x7f",
    "\u2028#include <x>\u2029\x85int q;",
    "é*／ \U0001f600 */",
    "[/red]:bomb:",
    "${HOME} $(id) `id`",
    "\\x22); f(\\x22 \\u0022",
    'R"(',
    "#define float int",
    '%:include "x"',
    "<% %> <: :>",
    "__attribute__((constructor))",
    "../../x",
)
"""Texts with a meaning in C, a shell, a format string, a terminal or a path."""

_TRIGRAPHS = dict(zip("=/'()!<>-", "#\\^[]|{}~", strict=True))
_TOKEN = re.compile(
    r"""
      /\*.*?\*/ | //[^\n]* | [ \t\v\f\r]+
    | (?P<string> (?:u8|u|U|L)? "(?: \\. | [^"\\\n] )*" )
    | (?P<char> (?:u|U|L)? '(?: \\. | [^'\\\n] )*' )
    | (?P<other> [A-Za-z_]\w* | \.?\d(?:[eEpP][+-]|[\w.])* | \n | . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def tokens(source: str) -> list[str]:
    """Split C into tokens; a string is `""`, and line ends count only in directives."""
    text = re.sub(r"\?\?([=/'()!<>-])", lambda match: _TRIGRAPHS[match[1]], source)
    text = re.sub(r"\\[ \t]*\r?\n", "", text)
    found = []
    for match in _TOKEN.finditer(text):
        if match["string"]:
            found.append('""')
        elif match["char"] or match["other"]:
            found.append(match[0])
    lines = "\x00".join(found).split("\n")
    nonempty = [line.strip("\x00") for line in lines if line.strip("\x00")]
    return [f"\n{line}" if line.startswith("#") else line for line in nonempty]


def program_tokens(graph: Graph, training: Training | None = None) -> dict[str, list[str]]:
    """Return the tokens of each generated file of a graph that is compiled for training.

    The program's own identifiers, derived from its name, count as one.
    """
    backend = CBackend(device_of("avx2"))
    program = compile_program(graph, training, target=backend.target())
    return {
        name.replace(header_name(graph.name), "program.h"): [
            _without_identifiers(line, graph.name) for line in tokens(text)
        ]
        for name, text in generate(program, backend).items()
    }


def _without_identifiers(line: str, name: str) -> str:
    """Replace tokens that are the program's symbol or are defined by its header."""
    symbol, prefix = program_symbol(name), f"PE_{identifier(name).upper()}_"

    def is_own(token: str) -> bool:
        word = re.fullmatch(r"\w+", token, re.ASCII) is not None
        return word and (token == symbol or token.startswith(prefix))

    return "\0".join("own" if is_own(token) else token for token in line.split("\0"))


def check_names(build: Callable[[Callable[[str], str]], Graph], attacks: Sequence[str]) -> None:
    """Check that a graph with hostile names gives the same C as its harmless twin.

    `build` gets a function that turns harmless names into hostile ones, and applies it to every
    name.
    """
    twin = build(lambda name: name)
    expected = program_tokens(twin)
    for attack in attacks:
        graph = build(partial("{}{attack}".format, attack=attack))
        assert _names(graph) != _names(twin), attack
        assert program_tokens(graph) == expected, attack


def _names(graph: Graph) -> list[str]:
    values = [value.name for value in graph.values()]
    return [graph.name, *graph.outputs, *values, *(node.scope for node in graph.nodes)]
