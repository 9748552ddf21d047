"""Commands of the farm about measurements: compare two commits, draw a trend."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.table import Table

from pockengine.errors import FarmError
from pockengine.farm.cli.base import CONSOLE, JSON, from_user, plain_errors
from pockengine.farm.results.commits import history as commits_to
from pockengine.farm.results.database import check_stored
from pockengine.farm.results.gate import against, conclude, report
from pockengine.farm.results.newest import newest
from pockengine.farm.results.regression import Change, Comparison, figure
from pockengine.farm.results.results import Record, Results
from pockengine.farm.results.trend import draw, trends

DATABASE = click.option(
    "--database", help="SQLAlchemy URL of the results; default: SQLite of this user."
)


@click.command()
@click.option("--baseline", default="main", show_default=True, help="A git revision.")
@click.option("--revision", default="HEAD", show_default=True, help="The revision to compare.")
@click.option("--device", help="Default: all devices.")
@JSON
@DATABASE
@click.option("--out", type=click.Path(path_type=Path), help="Folder for JUnit, Markdown.")
@plain_errors
def compare(
    baseline: str,
    revision: str,
    device: str | None,
    as_json: bool,
    database: str | None,
    out: Path | None,
) -> None:
    """Compare the stored figures of a commit with a baseline's; exit with 1 on a regression."""
    check_stored(database)
    results = Results(database)
    stored = results.find({"device": device} if device else None)
    if not stored:
        where = f" of device {device}; `results` lists what there is, or" if device else ";"
        raise FarmError(f"no stored record{where} measure one by `bench` first")
    commit = commits_to(revision)[0]
    current = [record for record in stored if record.commit == commit]
    if not current:
        raise FarmError(
            f"no stored record of {revision} ({commit}); run the bench there first, with a clean "
            f"checkout, into the same database"
        )
    comparisons = against(current, baseline, results, revision)
    results.close()
    folder = None if out is None else from_user(str(out))
    if as_json:
        click.echo(json.dumps([_row(one) for one in comparisons], indent=1))
        raise SystemExit(conclude(comparisons, baseline, folder))
    raise SystemExit(report(comparisons, baseline, folder, CONSOLE))


def _row(one: Comparison) -> dict[str, object]:
    """Return a comparison for JSON: both records whole, without their samples."""
    missing = one.change is Change.MISSING
    records = {"now": None if missing else one.record, "before": one.baseline}
    return {
        "figure": one.name,
        "change": one.change.value,
        "why": one.why,
        "blame": one.blame and asdict(one.blame),
        **{
            name: record and asdict(replace(record, samples=None))
            for name, record in records.items()
        },
    }


@click.command("results")
@click.option("--metric")
@click.option("--device")
@click.option("--model")
@click.option("--scheme")
@click.option("--engine")
@click.option("--json", "as_json", is_flag=True, help="Print every record as a line of JSON.")
@DATABASE
@plain_errors
def results_command(database: str | None, as_json: bool, **filters: str | None) -> None:
    """List the newest record of each figure; * marks times measured on a busy machine."""
    records = stored(database, filters)
    if as_json:
        for record in records:
            click.echo(record.to_json())
    elif not records:
        CONSOLE.print("no record is stored that matches; bench stores some")
    else:
        CONSOLE.print(results_table(newest(records)))


def stored(database: str | None, filters: Mapping[str, str | None]) -> list[Record]:
    """Return the records with the given values, oldest first."""
    check_stored(database)
    results = Results(database)
    try:
        return results.find({name: value for name, value in filters.items() if value is not None})
    finally:
        results.close()


def results_table(records: Sequence[Record]) -> Table:
    """Format figures with place and time of measurement."""
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
@click.option(
    "--revision",
    default="HEAD",
    show_default=True,
    help="Use the commits that lead to this revision.",
)
@JSON
@DATABASE
@plain_errors
def history(
    metric: str,
    device: str | None,
    model: str | None,
    scheme: str | None,
    engine: str,
    revision: str,
    as_json: bool,
    database: str | None,
) -> None:
    """Draw METRIC over the commits and mark where it moved; `results` lists the stored metrics."""
    filters = {"device": device, "model": model, "scheme": scheme, "metric": metric}
    found = trends(stored(database, {**filters, "engine": engine}), commits_to(revision))
    if as_json:
        click.echo(json.dumps([asdict(trend) for trend in found], indent=1))
        return
    for trend in found:
        CONSOLE.print(draw(trend))
