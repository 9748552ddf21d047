"""What commands print: names are text, never markup and never what a terminal obeys."""

from typing import Any

from rich.console import Console
from rich.text import Text

from pockengine.errors import printable


class PlainConsole(Console):
    """A console on which every text stands as it is, whatever rich or the terminal make of it.

    `width` counts where the output is no terminal.
    """

    def __init__(self, width: int | None = None) -> None:
        super().__init__(
            width=None if Console().is_terminal else width,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def render_str(self, text: str, **options: Any) -> Text:
        """Return what is printed for a text."""
        return super().render_str(printable(text), **options)
