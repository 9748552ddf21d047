"""Farm commands for jobs and leases of boards: run, jobs, leases, quarantine, log."""

import json
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from pockengine.errors import FarmError, reason_of
from pockengine.farm.boards.board import Board, boards_for, load_boards
from pockengine.farm.cli.base import CONSOLE, JSON, from_user, plain_errors, print_rows
from pockengine.farm.cli.teller import Teller
from pockengine.farm.jobs.batch import JobBatch, JobVerdict, QueuedJob, batches
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.quarantine import Quarantine
from pockengine.farm.jobs.run import run_batch
from pockengine.farm.jobs.store import Store
from pockengine.farm.jobs.worker import Site
from pockengine.farm.labgrid.pool import LabgridPool
from pockengine.farm.names import check_name
from pockengine.farm.results.database import check_stored
from pockengine.farm.transports.transport import printable
from pockengine.files import read_toml
from pockengine.folders import data_folder
from pockengine.terminal import counted

LINES_SHOWN, MOST_SHOWN = 20, 1 << 16
"""Displayed output of a failed job: maximum lines, and bytes examined."""
LOGS = {"stdout", "stderr", "console.log", "ssh.jsonl"}
"""Files of an attempt in addition to its outputs."""
FORMS = {
    "name": ("a text", (str,)),
    "program": ("the path of a file", (str,)),
    "args": ("a list", (list,)),
    "inputs": ('a table of files by name, such as { "rows.npz" = "data/rows.npz" }', (dict,)),
    "outputs": ("a list of names", (list,)),
    "device": ("the name of a device", (str,)),
    "tags": ("a list of texts", (list,)),
    "time_limit_s": ("a number of seconds", (int, float)),
    "priority": ("an integer", (int,)),
}
"""What the keys of a job contain."""
DATABASE = click.option("--database", help="SQLAlchemy URL; default: SQLite of this user.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--batch", help="A name; a batch of that name is resumed. Default: a new one.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of outputs and logs.")
@click.option("--priority", default=0, show_default=True, help="Priority in the queue for boards.")
@click.option("--pool", help="Use the boards of a coordinator: labgrid://host:port.")
@DATABASE
@plain_errors
def run(
    file: Path,
    batch: str | None,
    out: Path | None,
    priority: int,
    pool: str | None,
    database: str | None,
) -> None:
    """Run the jobs of a TOML FILE on all suitable boards: [[job]] name, program, args, device.

    A job's output is shown as it arrives. Each attempt has a folder JOB.ATTEMPT of its outputs and
    logs in --out, by default a folder of the batch among this user's data.
    """
    name = check_name(batch or time.strftime("%Y%m%d-%H%M%S"), "batch")
    logs = from_user(str(out)) if out else data_folder() / "runs" / name
    owner = Owner.here()
    with ExitStack() as stack:
        store = stack.enter_context(closing(Store(database)))
        inventory = load_boards()
        leases: Leases | LabgridPool
        if pool is None:
            leases = stack.enter_context(closing(Leases(store, owner)))
        else:
            leases = stack.enter_context(closing(LabgridPool(pool, owner)))
            inventory = leases.boards(inventory)
        tasks, boards = read_jobs(from_user(str(file)), inventory)
        sizes = f"{counted(len(tasks), 'job')}, {counted(len(boards), 'board')}"
        CONSOLE.print(f"batch {name}: {sizes}, outputs and logs in {logs}")
        site = Site(
            JobBatch(store, name, owner), leases, Quarantine(store), logs, priority=priority
        )
        teller = Teller(site.doing)
        site.tell = teller.say
        site.batch.add(tasks)
        verdicts = run_batch(site, boards, teller)
    print_verdicts(verdicts)
    raise SystemExit(0 if all(one.verdict == "passed" for one in verdicts) else 1)


@click.command()
@click.argument("batch", required=False)
@JSON
@DATABASE
@plain_errors
def jobs(batch: str | None, as_json: bool, database: str | None) -> None:
    """List the batches, or the jobs of a BATCH: progress, and the output of failed jobs."""
    check_stored(database)
    with closing(Store(database)) as store:
        known = batches(store)
        if batch is None:
            rows = (
                {"batch": name, "jobs": count, "open": left}
                for name, (count, left) in known.items()
            )
            print_rows(rows, "{batch}: {jobs} jobs, {open} open", "no batch was run yet", as_json)
        elif batch not in known:
            raise FarmError(f"no batch {batch!r}; known: {', '.join(known) or 'none'}")
        else:
            verdicts = JobBatch(store, batch, Owner.here()).verdicts()
            if as_json:
                click.echo(json.dumps([asdict(one) for one in verdicts], indent=1, default=str))
            else:
                print_verdicts(verdicts)


@click.command()
@JSON
@DATABASE
@plain_errors
def leases(as_json: bool, database: str | None) -> None:
    """List the leases of boards, with their owners."""
    check_stored(database)
    with closing(Store(database)) as store, closing(Leases(store)) as client:
        rows = ({key: row[key] for key in ("board", "label", "since")} for row in client.leased())
        print_rows(rows, "{board} {label} since {since}", "no board is leased", as_json)


@click.command()
@click.argument("board", required=False)
@click.option("--reason", help="Quarantine BOARD for this reason.")
@click.option("--release", is_flag=True, help="Release BOARD from quarantine.")
@JSON
@DATABASE
@plain_errors
def quarantine(
    board: str | None, reason: str | None, release: bool, as_json: bool, database: str | None
) -> None:
    """List quarantined boards with the reasons; quarantine or release one."""
    if board is None:
        check_stored(database)
    with closing(Store(database)) as store:
        ward = Quarantine(store)
        if board and reason:
            ward.shut_out(board, reason)
        elif board and release:
            ward.let_in(board)
        elif reason or release:
            raise FarmError("say which BOARD")
        shut = (
            {"board": name, "since": since, "reason": why}
            for name, (why, since) in ward.reasons().items()
        )
        print_rows(shut, "{board} since {since}: {reason}", "no board is in quarantine", as_json)


@click.command()
@click.argument("board", required=False)
@JSON
@DATABASE
@plain_errors
def log(board: str | None, as_json: bool, database: str | None) -> None:
    """Print the history of boards, oldest event first."""
    check_stored(database)
    with closing(Store(database)) as store:
        diary = (
            {key: row[key] for key in ("time", "board", "text")}
            for row in Quarantine(store).diary(board)
        )
        empty = f"nothing happened to {board or 'the boards'} yet"
        print_rows(diary, "{time} {board}: {text}", empty, as_json)


def read_jobs(file: Path, boards: list[Board]) -> tuple[list[QueuedJob], list[Board]]:
    """Read jobs and find their boards; FarmError names file, job and fault."""
    try:
        table = read_toml(file)
    except (OSError, ValueError) as error:
        raise FarmError(f"{file}: cannot read the jobs: {reason_of(error)}") from None
    entries = table.get("job")
    if not isinstance(entries, list) or not entries:
        raise FarmError(f"{file}: no [[job]]; begin each job with this line, in double brackets")
    tasks: list[QueuedJob] = []
    used: dict[str, Board] = {}
    for i, entry in enumerate(entries, 1):
        try:
            task, able = _task(entry, file.parent, boards)
        except (AttributeError, OSError, TypeError, ValueError, KeyError, FarmError) as error:
            raise FarmError(f"{file}: job {i}: {_named(error)}") from None
        tasks.append(task)
        used |= {board.name: board for board in able}
    if len({task.name for task in tasks}) < len(tasks):
        raise FarmError(f"{file}: two jobs have one name")
    return tasks, list(used.values())


def _named(error: Exception) -> str:
    """Return an error's message; of an OSError with the file's name."""
    place = error.filename if isinstance(error, OSError) else None
    return f"{place}: {reason_of(error)}" if place else reason_of(error)


def _task(
    entry: dict[str, Any], folder: Path, boards: list[Board]
) -> tuple[QueuedJob, list[Board]]:
    unknown = sorted(set(entry) - set(FORMS))
    if unknown:
        raise ValueError(f"unknown {', '.join(unknown)}; known: {', '.join(sorted(FORMS))}")
    if "program" not in entry or "name" not in entry:
        raise ValueError("name and program are needed")
    for key, (form, kinds) in FORMS.items():
        if type(entry.get(key, kinds[0]())) not in kinds:
            raise ValueError(f"{key} must be {form}, not {entry[key]!r}")
    inputs = {str(name): folder / path for name, path in entry.get("inputs", {}).items()}
    job = Job(
        folder / entry["program"],
        args=tuple(map(str, entry.get("args", []))),
        inputs=inputs,
        outputs=tuple(map(str, entry.get("outputs", []))),
        time_limit_s=float(entry.get("time_limit_s", 600.0)),
    )
    if taken := sorted(LOGS & set(job.outputs)):
        raise ValueError(f"outputs: a log is named {taken[0]}; choose another name")
    for path in (job.program, *inputs.values()):
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name its files one by one, or pack it into one")
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
    able = boards_for(entry.get("device", "host"), boards, entry.get("tags", []))
    names = tuple(board.name for board in able)
    return QueuedJob(str(entry["name"]), job, names, int(entry.get("priority", 0))), able


def print_verdicts(verdicts: list[JobVerdict]) -> None:
    """Print the verdict of each job, and the last lines of failed ones."""
    CONSOLE.print(verdict_table(verdicts))
    for one in verdicts:
        if one.verdict not in ("passed", None) and one.log is not None:
            for stream in ("stdout", "stderr"):
                _print_end(one.name, Path(one.log) / stream)


def _print_end(name: str, file: Path) -> None:
    """Print the end of a program's output; a client on another machine has the file."""
    if not file.is_file():
        return
    lines = file.read_bytes()[-MOST_SHOWN:].decode(errors="replace").splitlines()[-LINES_SHOWN:]
    if lines:
        CONSOLE.print(f"{name}, the end of {file}:", soft_wrap=True)
        for line in lines:
            CONSOLE.print(f"  {printable(line)}", soft_wrap=True)


def verdict_table(verdicts: list[JobVerdict]) -> Table:
    """Format the verdict of each job."""
    table = Table()
    for heading in ("job", "verdict", "attempts", "message"):
        table.add_column(heading)
    for one in verdicts:
        tries = ", ".join(f"{board} {outcome}" for board, outcome in one.attempts)
        style = "" if one.verdict == "passed" else "red"
        table.add_row(one.name, one.verdict or "open", tries, one.message, style=style)
    return table
