"""`pockengine report`: stored figures as one page of HTML."""

from pathlib import Path

import click

from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors
from pockengine.farm.cli.results import DATABASE, stored
from pockengine.farm.report.records import records_page
from pockengine.farm.results.commits import history as commits_to
from pockengine.files import write_text_whole


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True
)
@click.option("--device", help="Default: all devices.")
@click.option("--model", help="Default: all models.")
@click.option("--revision", default="HEAD", show_default=True, help="The commits that lead to it.")
@DATABASE
@plain_errors
def report(
    out: Path, device: str | None, model: str | None, revision: str, database: str | None
) -> None:
    """Write the stored figures as one page of HTML: tables that sort, bars, lines over commits."""
    records = stored(database, {"device": device, "model": model})
    page = from_user(out)
    write_text_whole(page, records_page(records, commits_to(revision)))
    CONSOLE.print(f"{len(records)} records in {page}")
