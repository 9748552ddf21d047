"""Run a page of the documentation as a program of files, Python and commands."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FARM = "docs/tutorials/farm.md"
PHONE = "docs/tutorials/phone.md"
WITH_BOARDS = ("docs/jobs.md", "docs/tutorials/board.md", FARM, PHONE)
"""Pages with emulated boards. The phone page boots none and needs adb; the farm's runs nightly."""

ALONE = (
    "README.md",
    "docs/howto/vision-language.md",
    "docs/index.md",
    "docs/tutorials/app.md",
    "docs/tutorials/research.md",
)
"""Pages that begin in an empty folder."""

LONG = ("docs/tutorials/language.md", "docs/tutorials/pictures.md", "docs/tutorials/search.md")
"""Pages that train for half a minute or more; their test runs nightly."""

METHODS = (
    "docs/howto/distill.md",
    "docs/howto/grpo.md",
    "docs/howto/kto.md",
    "docs/howto/preferences.md",
    "docs/howto/weighted.md",
)
"""Pages of `finetune-lm` that continue with the first block of LONG's first page, a model."""

FENCE = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of code: a file if it has a title, otherwise input that a reader types."""

    language: str
    title: str | None
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """Return a page's code blocks that name a language."""
    text = page.read_text()
    return [
        Block(
            match["language"], match["title"], match["text"], text[: match.start()].count("\n") + 2
        )
        for match in FENCE.finditer(text)
    ]


def follow(
    page: Path, folder: Path, environment: dict[str, str], first: int | None = None
) -> dict[str, Any]:
    """Run a page's blocks in `folder`, the current folder; return Python's namespace.

    `first` limits the run to that many blocks.

    In the page's order, write files, run Python in one namespace, and run commands in bash. An
    AssertionError names the line of a failing command.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page)[:first]:
        if block.title is not None:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "python":
            lines = "\n" * (block.line - 1)  # so that errors name the page's lines
            exec(compile(lines + block.text, str(page), "exec"), names)
        elif block.language == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            output = f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
            assert done.returncode == 0, f"{page}:{block.line}: {output}"
    return names
