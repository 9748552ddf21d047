"""Commands of the farm about what was measured: compare two commits, draw a trend."""

from pathlib import Path

import click

from pockengine.errors import FarmError
from pockengine.farm.cli.base import CONSOLE, from_user, plain_errors
from pockengine.farm.results.commits import history as commits_to
from pockengine.farm.results.commits import newest_known
from pockengine.farm.results.gate import against, report
from pockengine.farm.results.results import Results
from pockengine.farm.results.trend import draw, trends


@click.command()
@click.option("--baseline", default="main", show_default=True, help="A revision of git.")
@click.option("--revision", default="HEAD", show_default=True, help="What is compared with it.")
@click.option("--device", help="Default: all devices.")
@click.option("--database", help="SQLAlchemy URL of the results; default: SQLite of this user.")
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


@click.command()
@click.argument("metric", required=False)
@click.option("--device")
@click.option("--model")
@click.option("--scheme")
@click.option("--engine", default="pockengine", show_default=True)
@click.option("--revision", default="HEAD", show_default=True, help="The commits that lead to it.")
@click.option("--database", help="SQLAlchemy URL of the results; default: SQLite of this user.")
@plain_errors
def history(
    metric: str | None,
    device: str | None,
    model: str | None,
    scheme: str | None,
    engine: str,
    revision: str,
    database: str | None,
) -> None:
    """Draw METRIC over the commits and say where it moved; without METRIC list what is stored."""
    wanted = {"device": device, "model": model, "scheme": scheme, "metric": metric}
    equal = {name: value for name, value in wanted.items() if value is not None}
    results = Results(database)
    records = results.find({**equal, "engine": engine})
    results.close()
    if metric is None:
        for line in sorted({f"{x.metric} {x.device} {x.model} {x.scheme}" for x in records}):
            CONSOLE.print(line)
        return
    for trend in trends(records, commits_to(revision)):
        CONSOLE.print(draw(trend))
