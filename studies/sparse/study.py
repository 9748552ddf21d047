"""The comparison as one command, which continues where it stopped.

bazel run //studies/sparse -- --out studies/results bazel run //studies/sparse -- --out
studies/results --render-only
"""

import os
import traceback
from pathlib import Path

import click

from pockengine import PockEngineError
from pockengine.farm.results.commits import current_commit
from pockengine.finetune.executor import PROCESSES, open_executor
from pockengine.folders import cache_folder
from pockengine.studies.sparse.desk import Desk
from pockengine.studies.sparse.journal import Journal
from pockengine.studies.sparse.plan import Effort, Pair, effort_of, find_pairs, quick
from pockengine.studies.sparse.report import write_report
from pockengine.studies.sparse.runner import count_pair, study_pair
from pockengine.studies.sparse.subjects import StudyFolders

JOURNAL = "sparse-trials.jsonl"
DATA = "POCKENGINE_DATA"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of results.")
@click.option("--data", type=click.Path(path_type=Path), envvar=DATA, help=f"By default ${DATA}.")
@click.option("--minilm", type=click.Path(path_type=Path), help="Folder of MiniLM's files.")
@click.option("--cache", type=click.Path(path_type=Path), help="Folder of compiled artifacts.")
@click.option("--pair", "pairs", multiple=True, help="A model, a data set, or model/data set.")
@click.option("--examples", type=click.IntRange(1), help="Training examples of each pair.")
@click.option("--epochs", type=click.IntRange(1))
@click.option("--seeds", type=click.IntRange(1), help="How many seeds.")
@click.option("--workers", type=click.IntRange(1), help="Processes; by default one a core.")
@click.option("--scheduler", default=PROCESSES, show_default=True, help="Or tcp://HOST:PORT.")
@click.option("--quick", "tiny", is_flag=True, help="Tiny sizes: only to see that all works.")
@click.option("--instructions", is_flag=True, help="Count instructions on the emulated board too.")
@click.option("--controls", is_flag=True, help="Compare ways to search and to choose channels.")
@click.option("--render-only", is_flag=True, help="Run nothing; write the page from what is there.")
def main(
    out: Path,
    data: Path | None,
    minilm: Path | None,
    cache: Path | None,
    pairs: tuple[str, ...],
    examples: int | None,
    epochs: int | None,
    seeds: int | None,
    workers: int | None,
    scheduler: str,
    tiny: bool,
    instructions: bool,
    controls: bool,
    render_only: bool,
) -> None:
    """Compare training schemes on every pair of a model and a data set."""
    out = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), out)
    try:
        journal = Journal(out / JOURNAL)
        if not render_only:
            if data is None:
                raise click.UsageError(f"set {DATA} or give --data: the folder of data and weights")
            places = StudyFolders(data, minilm, (cache or cache_folder() / "study").resolve())
            efforts = {
                pair: (quick(effort_of(pair)) if tiny else effort_of(pair)).scaled(
                    examples, epochs, seeds
                )
                for pair in find_pairs(pairs)
            }
            count = None if scheduler != PROCESSES else workers
            with open_executor(scheduler, count) as executor:
                desk = Desk(places, journal, executor, current_commit(), _tell)
                run_all(desk, efforts, out, instructions, controls)
        click.echo(write_report(journal, out))
        journal.pack()
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error


def run_all(
    desk: Desk, efforts: dict[Pair, Effort], out: Path, instructions: bool, controls: bool
) -> None:
    """Study the pairs in turn; a failure of one is reported, and the others continue."""
    failed = []
    for pair, effort in efforts.items():
        try:
            study_pair(desk, pair, effort, out, controls)
        except PockEngineError as error:
            failed.append(f"{pair}: {error}")
            desk.tell(f"{pair} failed: {error}\n{traceback.format_exc()}")
        write_report(desk.journal, out)
    if instructions:
        for pair, effort in efforts.items():
            count_pair(desk, pair, effort, out)
        write_report(desk.journal, out)
    if failed:
        raise click.ClickException("; ".join(failed))


def _tell(text: str) -> None:
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
