"""`pockengine report`: stored figures as one page of HTML."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from pockengine.errors import FarmError, reason_of
from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors
from pockengine.farm.cli.results import DATABASE, stored
from pockengine.farm.report.records import records_page
from pockengine.farm.results.commits import history as commits_to
from pockengine.farm.results.results import Record
from pockengine.files import write_text_whole


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True
)
@click.option("--device", help="Default: all devices.")
@click.option("--model", help="Default: all models.")
@click.option(
    "--records",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file from a bench's --json instead of the database; may be repeated.",
)
@click.option(
    "--revision",
    default="HEAD",
    show_default=True,
    help="Use the commits that lead to this revision.",
)
@DATABASE
@plain_errors
def report(
    out: Path,
    device: str | None,
    model: str | None,
    files: Sequence[Path],
    revision: str,
    database: str | None,
) -> None:
    """Write the stored figures as one HTML page.

    Its tables sort; its pictures are bars, memory over a step, accuracy over memory, and figures
    over commits.
    """
    filters = {"device": device, "model": model}
    records = _read(files, filters) if files else stored(database, filters)
    page = from_user(out)
    write_text_whole(page, records_page(records, commits_to(revision)))
    CONSOLE.print(f"{len(records)} records in {page}", soft_wrap=True)


def _read(files: Sequence[Path], filters: Mapping[str, str | None]) -> list[Record]:
    """Read lines of JSON; FarmError for a malformed file."""
    records = []
    for file in files:
        try:
            lines = from_user(file).read_text(encoding="utf-8").splitlines()
            records += [Record.from_json(line) for line in lines]
        except (OSError, ValueError, FarmError) as error:
            raise FarmError(f"{file}: cannot read its records: {reason_of(error)}") from None
    return [
        record
        for record in records
        if all(value in (None, getattr(record, name)) for name, value in filters.items())
    ]
