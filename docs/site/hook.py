"""A hook of mkdocs: adds the reference pages that sources define, as the site is built.

So they cannot be stale. `python docs/site/hook.py FOLDER` writes them as files.
"""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))  # not an installed package, which has no pages

from pockengine.docs.site.catalog_pages import ops_page, schemes_page, training_page
from pockengine.docs.site.command_pages import command_page
from pockengine.docs.site.file_pages import devices_page, records_page
from pockengine.docs.site.header_pages import header_page
from pockengine.docs.site.operator_pages import PAGES, operator_page
from pockengine.docs.site.python_pages import error_page, python_page

SHORT_CODE = re.compile(r"<code>(?=[^<]{1,30}</code>)")


def pages() -> dict[str, str]:
    """Return the generated pages by their place."""
    return {
        "reference/commands.md": command_page(),
        "reference/python.md": python_page(),
        "reference/errors.md": error_page(),
        **{f"reference/operators/{name}.md": operator_page(name) for name in PAGES},
        "reference/headers.md": header_page(),
        "reference/ops.md": ops_page(),
        "reference/schemes.md": schemes_page(),
        "reference/training.md": training_page(),
        "reference/devices.md": devices_page(),
        "reference/records.md": records_page(),
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to those of the folder."""
    file = import_module("mkdocs.structure.files").File
    for place, text in pages().items():
        files.append(file.generated(config, place, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Mark short inline code, such as an option, which the style sheet keeps on one line."""
    return SHORT_CODE.sub('<code class="short">', html)


if __name__ == "__main__":
    for place, text in pages().items():
        path = Path(sys.argv[1]) / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
