"""Commands of the farm about what was measured: compare two commits, draw a trend."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.errors import FarmError
from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors
from pockengine.farm.results.commits import history as commits_to
from pockengine.farm.results.commits import newest_known
from pockengine.farm.results.gate import against, report
from pockengine.farm.results.newest import newest
from pockengine.farm.results.regression import figure
from pockengine.farm.results.results import Record, Results
from pockengine.farm.results.trend import draw, trends

DATABASE = click.option(
    "--database", help="SQLAlchemy URL of the results; default: SQLite of this user."
)


@click.command()
@click.option("--baseline", default="main", show_default=True, help="A revision of git.")
@click.option("--revision", default="HEAD", show_default=True, help="What is compared with it.")
@click.option("--device", help="Default: all devices.")
@DATABASE
@click.option("--out", type=click.Path(path_type=Path), help="Folder for JUnit, Markdown.")
@plain_errors
def compare(
    baseline: str, revision: str, device: str | None, database: str | None, out: Path | None
) -> None:
    """Compare the stored figures of a commit with those of a baseline; status 1 when worse."""
    results = Results(database)
    stored = results.find({"device": device} if device else None)
    if not stored:
        raise FarmError("no stored record; run bazel run //farm:bench first")
    commit = commits_to(revision)[0]
    current = newest_known(stored, [commit])
    comparisons = against(current, baseline, results, skip=commit)
    results.close()
    folder = None if out is None else from_user(str(out))
    raise SystemExit(report(comparisons, baseline, folder, CONSOLE))


@click.command("results")
@click.option("--metric")
@click.option("--device")
@click.option("--model")
@click.option("--scheme")
@click.option("--engine")
@click.option("--json", "as_json", is_flag=True, help="Print every record as a line of JSON.")
@DATABASE
@plain_errors
def results_command(database: str | None, as_json: bool, **wanted: str | None) -> None:
    """List the newest of each figure that is stored; * marks times of a busy machine."""
    records = stored(database, wanted)
    if as_json:
        for record in records:
            click.echo(record.to_json())
    elif not records:
        CONSOLE.print("no record is stored that matches; bench stores some")
    else:
        CONSOLE.print(results_table(newest(records)))


def stored(database: str | None, wanted: Mapping[str, str | None]) -> list[Record]:
    """Return the records with the wanted values, oldest first."""
    results = Results(database)
    try:
        return results.find({name: value for name, value in wanted.items() if value is not None})
    finally:
        results.close()


def results_table(records: Sequence[Record]) -> Table:
    """Lay figures out with where and when they were measured."""
    table = Table(box=SIMPLE)
    for heading in ("device", "model / batch", "scheme", "engine", "metric"):
        table.add_column(heading)
    table.add_column("value", justify="right", no_wrap=True)
    for heading in ("commit", "when"):
        table.add_column(heading)
    for one in records:
        value = f"{figure(one)}{'*' * one.busy}{'' if one.ok else ' FAILED'}"
        what = (f"{one.model} / {one.batch}", one.scheme, one.engine, one.metric)
        device = f"{one.device}, emulated" if one.emulated else one.device
        table.add_row(device, *what, value, one.commit, one.time[:10])
    return table


@click.command()
@click.argument("metric")
@click.option("--device")
@click.option("--model")
@click.option("--scheme")
@click.option("--engine", default="pockengine", show_default=True)
@click.option("--revision", default="HEAD", show_default=True, help="The commits that lead to it.")
@DATABASE
@plain_errors
def history(
    metric: str,
    device: str | None,
    model: str | None,
    scheme: str | None,
    engine: str,
    revision: str,
    database: str | None,
) -> None:
    """Draw METRIC over the commits and say where it moved; `results` lists what is stored."""
    wanted = {"device": device, "model": model, "scheme": scheme, "metric": metric}
    for trend in trends(stored(database, {**wanted, "engine": engine}), commits_to(revision)):
        CONSOLE.print(draw(trend))
