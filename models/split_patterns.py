"""Regular expressions that split a text into pieces, as steps of pe_tokenizer_split.c."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import NoReturn

import numpy as np

from pockengine.errors import ImportModelError
from pockengine.models import unicode_table

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
MOST_SETS, MOST_STEPS, MOST_PATTERNS = 32, 256, 8
MOST_DEPTH, MOST_LONG_RUNS, LONG_RUN = 16, 2, 64
"""Maximum nesting of groups, and maximum runs of over 64 characters in a sequence that give back:
n of them take time in the nth power of a text's length.
"""
ENDLESS = 0xFFFFFFFF
_CONTROLS = {r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_QUANTIFIERS = {"?": (0, 1), "*": (0, ENDLESS), "+": (1, ENDLESS)}
_LEXEMES = re.compile(r"\\[pP]\{[^}]*\}|\\.|\(\?i:|\(\?:|\(\?!|\(\?|\{(\d*),?(\d*)\}|.", re.DOTALL)
_UNSUPPORTED = re.compile(r"[\^$.?*+\\\]]|\(\?|\{.*|\\(?![sSdDwW])[^\W_]|\[\^?\]")
"""Anchors, groups of other kinds, quantifiers of nothing, escaped letters, and empty sets."""


class Step(IntEnum):
    """Operations of pe_tokenizer_split.c."""

    DONE = 0
    RUN = 1
    POSSESSIVE = 2
    NOT = 3
    ELSE = 4
    GO = 5


@dataclass(frozen=True)
class Run:
    """Characters of a set, `least` to `most` of them; a run that `shrinks` is not possessive.

    `chars` is one literal character, or what `unicode_table.members` takes.
    """

    chars: str
    least: int = 1
    most: int = 1
    shrinks: bool = True


@dataclass(frozen=True)
class NotAhead:
    """A place before none of these characters."""

    chars: str


@dataclass(frozen=True)
class Group:
    """The first of several sequences that matches, or nothing if it is optional."""

    options: tuple[tuple["Run | NotAhead | Group", ...], ...]
    optional: bool = False


Item = Run | NotAhead | Group


def parse(pattern: str) -> Group:
    """Parse a regular expression of `tokenizers`; ImportModelError names an unsupported part."""
    return _Parser(pattern).whole()


@dataclass
class _Parser:
    """A pattern, and the position of its next lexeme."""

    pattern: str
    at: int = 0
    depth: int = 0

    def whole(self) -> Group:
        group = Group(self._options(any_case=False))
        if self.at < len(self.pattern):
            self._refuse("a ')' without its '('")
        if _is_nullable(group):
            self._refuse("a match of no characters")
        if _long_runs(group) > MOST_LONG_RUNS:
            self._refuse(f"more than {MOST_LONG_RUNS} unbounded repeats in a sequence")
        return group

    def _refuse(self, what: str) -> NoReturn:
        raise ImportModelError(
            f"the tokenizer splits texts by {self.pattern!r}, which has {what}; the C runtime "
            "matches sets of characters with ?, *, + and {m,n}, (?!set), and groups with ?"
        )

    def _next(self) -> str:
        found = _LEXEMES.match(self.pattern, self.at)
        return found[0] if found else ""

    def _options(self, any_case: bool) -> tuple[tuple[Item, ...], ...]:
        options: list[tuple[Item, ...]] = []
        items: list[Item] = []
        while (lexeme := self._next()) not in ("", ")"):
            if lexeme == "|":
                self.at += 1
                options.append(tuple(items))
                items = []
            else:
                items.append(self._item(lexeme, any_case))
                if any_case and "".join(map(_letter, items[-2:])) in _ligatures():
                    self._refuse("adjacent letters that are one character in another case")
        return (*options, tuple(items))

    def _item(self, lexeme: str, any_case: bool) -> Item:
        if lexeme in ("(", "(?:", "(?i:", "(?!"):
            self.at += len(lexeme)
            self.depth += 1
            if self.depth > MOST_DEPTH:
                self._refuse(f"groups nested more than {MOST_DEPTH} deep")
            options = self._options(any_case or lexeme == "(?i:")
            if self._next() != ")":
                self._refuse("a '(' without its ')'")
            self.at += 1
            self.depth -= 1
            return self._not_ahead(options) if lexeme == "(?!" else self._group(options)
        chars = self._set(lexeme, any_case)
        least, most, shrinks = self._repeats()
        return Run(chars, least, most, shrinks)

    def _not_ahead(self, options: tuple[tuple[Item, ...], ...]) -> NotAhead:
        match options:
            case ((Run(chars, 1, 1),),) if self._repeats() == (1, 1, True):
                return NotAhead(chars)
        self._refuse("a (?!...) of more than one set")

    def _group(self, options: tuple[tuple[Item, ...], ...]) -> Group:
        least, most, shrinks = self._repeats()
        if most != 1 or not shrinks:
            self._refuse("a repeated group")
        return Group(options, optional=not least)

    def _repeats(self) -> tuple[int, int, bool]:
        """Read a quantifier, if there is one: least, most, and whether it gives back."""
        found = _LEXEMES.match(self.pattern, self.at)
        if not found or not (found[0] in _QUANTIFIERS or found[0][0] == "{"):
            return 1, 1, True
        self.at = found.end()
        if found[0] in _QUANTIFIERS:
            least, most = _QUANTIFIERS[found[0]]
        elif not (found[1] or found[2]) or max(map(len, found.groups())) > 4:
            self._refuse(f"a quantifier {found[0]}")
        else:
            least = int(found[1] or 0)
            most = least if "," not in found[0] else int(found[2] or ENDLESS)
        if most < least:
            self._refuse(f"a quantifier {found[0]}")
        more = self._next()
        if more in ("?", "*", "+") and (more, found[0][0] == "{") != ("+", False):
            self._refuse(f"a quantifier {found[0]}{more}")
        self.at += more == "+"
        return least, most, more != "+"

    def _set(self, lexeme: str, any_case: bool) -> str:
        """Read the set of one position."""
        lexeme = self._bracket() if lexeme == "[" else lexeme
        if lexeme in _CONTROLS:
            self.at += len(lexeme)
            return _CONTROLS[lexeme]
        elif _UNSUPPORTED.fullmatch(lexeme):
            self._refuse(f"{lexeme!r}")
        self.at += len(lexeme)
        if len(lexeme) == 2 and lexeme[0] == "\\" and not lexeme[1].isalnum():
            lexeme = lexeme[1]
        if any_case and (len(lexeme) > 1 or lexeme.lower() != lexeme.upper()):
            return f"(?i:{lexeme})"
        return lexeme

    def _bracket(self) -> str:
        """Return a set in brackets, which may contain others."""
        depth, at = 0, self.at
        while at < len(self.pattern):
            c = self.pattern[at]
            depth += (c == "[") - (c == "]")
            at += 2 if c == "\\" else 1
            if not depth:
                return self.pattern[self.at : at]
        self._refuse("a '[' without its ']'")


@cache
def _ligatures() -> frozenset[str]:
    """Return the first two letters of each character that is several in lower case, such as ß."""
    folded = (chr(c).casefold() for c in range(0x20000))
    return frozenset(letters[:2] for letters in folded if len(letters) > 1)


def _letter(item: Item) -> str:
    """Return the letter that a run matches in any case; other items have none."""
    chars = item.chars if isinstance(item, Run) else ""
    return chars.removeprefix("(?i:").removesuffix(")").lower()


def _is_nullable(item: Item) -> bool:
    if isinstance(item, Group):
        return item.optional or any(all(map(_is_nullable, option)) for option in item.options)
    return isinstance(item, NotAhead) or not item.least


def _long_runs(item: Item) -> int:
    """Return the long runs that give back in the sequence with the most of them."""
    if isinstance(item, Group):
        return max(sum(map(_long_runs, option)) for option in item.options)
    return int(isinstance(item, Run) and item.shrinks and item.most > LONG_RUN)


def covers(pattern: Group) -> bool:
    """Whether the pattern surely matches at every character, whatever follows it."""
    covered = np.zeros(unicode_table.CHARACTERS, bool)
    covered[0xD800:0xE000] = True  # surrogates
    for option in pattern.options:
        safe = all(isinstance(item, Group) or _gives_back(item) for item in option)
        match [item for item in option if not _is_nullable(item)]:
            case [Run(chars, 1)] if safe:
                covered |= unicode_table.members(chars)
    return bool(covered.all())


def _gives_back(item: Item) -> bool:
    return isinstance(item, Run) and item.shrinks


@dataclass
class Program:
    """Steps of all patterns, where each pattern begins, and the sets of characters they use."""

    sets: list[str] = field(default_factory=lambda: [r"\s"])
    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def masks(self) -> np.ndarray:
        """Return the sets of every character as bits, u32[0x110000]."""
        masks = np.zeros(unicode_table.CHARACTERS, np.uint32)
        for place, chars in enumerate(self.sets):
            masks |= unicode_table.members(chars).astype(np.uint32) << np.uint32(place)
        return masks


def compiled(patterns: Sequence[Group]) -> Program:
    """Return the steps of patterns; ImportModelError if the C runtime's tables are too small."""
    program = Program()
    for pattern in patterns:
        program.starts.append(len(program.steps))
        _add(program, pattern)
        program.steps.append((Step.DONE, 0, 0, 0))
    for what, count, most in (
        ("patterns", len(program.starts), MOST_PATTERNS),
        ("steps", len(program.steps), MOST_STEPS),
        ("sets of characters", len(program.sets), MOST_SETS),
    ):
        if count > most:
            raise ImportModelError(
                f"the tokenizer splits texts by {count} {what}; the C runtime has at most {most}"
            )
    return program


def _add(program: Program, item: Item) -> None:
    match item:
        case Run(chars, least, most, shrinks):
            step = Step.RUN if shrinks else Step.POSSESSIVE
            program.steps.append((step, _place(program, chars), least, most))
        case NotAhead(chars):
            program.steps.append((Step.NOT, _place(program, chars), 0, 0))
        case Group(options, optional):
            _add_options(program, [*options, ()] if optional else options)


def _add_options(program: Program, options: Sequence[Sequence[Item]]) -> None:
    steps, leaps = program.steps, []
    for option in options[:-1]:
        start = len(steps)
        steps.append((Step.ELSE, 0, 0, 0))
        for item in option:
            _add(program, item)
        leaps.append(len(steps))
        steps.append((Step.GO, 0, 0, 0))
        steps[start] = (Step.ELSE, len(steps), 0, 0)
    for item in options[-1]:
        _add(program, item)
    for leap in leaps:
        steps[leap] = (Step.GO, len(steps), 0, 0)


def _place(program: Program, chars: str) -> int:
    if chars not in program.sets:
        program.sets.append(chars)
    return program.sets.index(chars)


def digits(individual: bool) -> Group:
    """Return the pattern of the pre-tokenizer Digits."""
    return Group(((Run(unicode_table.NUMERIC, 1, 1 if individual else ENDLESS),),))
