"""Docstrings, comments, help texts and pages use the field's terms, not phrases of our own."""

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from pockengine.tests.repo.tree import files, read

HOMEMADE = re.compile(
    r"""
      \b(?:way\ (?:back|forward)|nobody|but\ for|so\ many|says?\ so)\b
    | \b(?:of\ ours|whole\ numbers?|small\ letters|anew|anybody)\b
    | \b(?:not\ what\ is|from\ which\ on|looks?\ into|(?:is|are)\ said)\b
    | \b(?:made|makes?|making)\ again\b
    | \b(?:is|are|be|was|were)\ told\b
    | \bwhat\ (?:is|are|was)\ (?:told|held|known|said|given|kept|wanted|answered)\b
    | \b(?:takes\ as\ many|there\ on\ purpose|where\ (?:none|no\ one)\ says)\b
    | \b(?:unless\ told|says?\ comes\ out|the\ why|none\ of\ (?:its|our)\ (?:form|key|business))\b
    | \bwhat\ (?:[\w`]+\ ){0,5}(?:came\ to(?!\ be)|stands?\ for\ (?:by\ )?now|is\ to\ be)\b
    | \bwhat\ (?:it|they)\ (?:is|are)\ called\b
    | :\ what\ (?:it|they)\ means?\b
    | ^(?:Say|Tell|Let|Hold\ each)\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""Instead write: backward pass, unused, except, recomputed, by default, result, current value,
name, ...
"""

BRITISH = re.compile(
    r"""
      (?:optim|quant|normal|recogn|initial|serial|stabil|special|synchron|minim|maxim|legal|factor
      |summar|token|vector|regular|random|parametr|memo|bin|material|general|author)
      is(?:e|ed|es|er|ers|ing|ations?)(?![a-z])
    | colour|neighbour|behaviour|favour|\bcent(?:re|red|res)\b|\banalys(?:e|ed|es|ing)\b
    | \bgr(?:ey|eyscale)\b|\blicence\b|\bcatalogue
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""American spelling, as in the frameworks' own names: `optimizer`, `neighbor`."""
WORD = re.compile(r"\w+")
OWN_EXAMPLES = ("tests/repo/test_words.py", "tests/repo/commit_title.py")
RECORDS = ("CHANGELOG.md", "studies/results/")
"""These files are not checked."""
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
CODE_BLOCK = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def flat(text: str) -> str:
    """Join lines, without the comment marks at their start."""
    return re.sub(r"\s*\n[\s#*/]*", " ", text.strip().strip("#/*")).strip()


def python_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings (also of attributes), help texts and comments."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr | ast.keyword):
            continue
        shown = isinstance(node, ast.Expr) or node.arg == "help"
        if shown and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.lineno, flat(node.value.value)
    block, first, last = "", 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                yield first, flat(block)
                block, first = "", token.start[0]
            block, last = f"{block}\n{token.string}", token.start[0]
    yield first, flat(block)


def c_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of comments."""
    for match in C_COMMENT.finditer(source):
        yield source.count("\n", 0, match.start()) + 1, flat(match.group())


def page_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of paragraphs and table rows, without code."""
    text = CODE_BLOCK.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), source)
    for match in re.finditer(r"(?:[^\n]+\n?)+", text):
        yield text.count("\n", 0, match.start()) + 1, flat(match.group())


PROSE = {".py": python_prose, ".c": c_prose, ".h": c_prose, ".md": page_prose}


def homemade(suffix: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield line and phrase; a file that has none of the phrases is not parsed."""
    if HOMEMADE.search(flat(source)) or re.search(r"\b(?:Say|Tell|Let|Hold each) ", source):
        for line, text in PROSE[suffix](source):
            if match := HOMEMADE.search(text):
                yield line, match.group()


def test_prose_uses_the_terms_of_the_field() -> None:
    found = [
        f"{path}:{line}: {phrase}"
        for path in files(*(f"*{suffix}" for suffix in PROSE))
        if not str(path).startswith((*OWN_EXAMPLES, *RECORDS))
        for line, phrase in homemade(path.suffix, read(path))
    ]
    assert not found, "use the term of the field, see HOMEMADE"


def test_spelling_is_american() -> None:
    british = functools.cache(BRITISH.search)  # each of 34,000 words once, not 10 MB of text
    found = [
        f"{path}:{source.count(chr(10), 0, source.index(word)) + 1}: {word}"
        for path in files(*(f"*{suffix}" for suffix in PROSE))
        if not str(path).startswith(OWN_EXAMPLES)
        for source in [read(path)]
        for word in dict.fromkeys(WORD.findall(source))
        if british(word)
    ]
    assert not found, "write it as PyTorch's documentation does"


@pytest.mark.parametrize("word", ["optimiser", "_quantised", "Neighbours", "PE_COLOUR", "centred"])
def test_british_spellings_are_found(word: str) -> None:
    assert BRITISH.search(word)


@pytest.mark.parametrize("word", ["precise", "raised", "noises", "paralysed", "greyhound"])
def test_other_words_pass(word: str) -> None:
    assert not BRITISH.search(word)


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".py", '"""Sum what is read on the way\nback."""\n'),
        (".py", 'RATE = 1\n"""Say how fast."""\n'),
        (".py", "x = 1  # in a tail: nobody reads it\n"),
        (".py", "# a block of lines, which is\n# told of each step\n"),
        (".py", 'option("--x", help="All but for the last.")\n'),
        (".c", "int x; /* shares are made\n * again */\n"),
        (".md", "| option | takes as many threads as it is told |\n"),
        (".py", '"""Permute the dimensions; reverse them unless told otherwise."""\n'),
        (".py", "# the numbers are those of ours, made anew\n"),
        (".py", '"""Record what one engine came to."""\n'),
        (".py", '"""Operators of two tensors: what they mean."""\n'),
    ],
)
def test_homemade_phrases_are_found(suffix: str, source: str) -> None:
    assert [*homemade(suffix, source)]


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".py", 'nobody = "nobody"\nlog("is told")\n'),
        (".c", 'puts("nobody");\n'),
        (".md", "Run `su nobody`:\n```\nsu nobody\n```\n"),
        (".py", '"""Return the values saved for the backward pass."""\n'),
    ],
)
def test_code_and_terms_pass(suffix: str, source: str) -> None:
    assert not [*homemade(suffix, source)]
