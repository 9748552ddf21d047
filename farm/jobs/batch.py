"""A batch of jobs in the database: claims, attempts, and one verdict per job.

A job whose program failed is not retried. A job whose board failed is requeued, for another board
if possible. If a client dies, the next client finds its attempts and requeues their jobs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

import sqlalchemy as sql

from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.owner import HeartbeatWatch, Owner
from pockengine.farm.jobs.store import ATTEMPTS, JOBS, Store
from pockengine.farm.names import check_name
from pockengine.farm.results.results import now
from pockengine.farm.transports.limits import CommandLimits

Outcome = Literal["passed", "failed", "infrastructure"]
MOST_ATTEMPTS = 6


@dataclass(frozen=True)
class QueuedJob:
    """A job, and the boards that may run it, by name."""

    name: str
    job: Job
    boards: tuple[str, ...]
    priority: int = 0

    def __post_init__(self) -> None:
        """Reject a name that is no valid folder name: each attempt has a log folder."""
        check_name(self.name, "job")


@dataclass(frozen=True)
class Claim:
    """A job that this client is running on one board."""

    id: int
    name: str
    job: Job
    board: str
    attempt: int
    token: str


@dataclass(frozen=True)
class JobVerdict:
    """Verdict of a job: passed, failed, or unrunnable; None while unfinished.

    `log` is the folder of its last finished attempt: stdout, stderr, SSH log. It is on the machine
    that ran the batch.
    """

    name: str
    verdict: str | None
    message: str
    attempts: tuple[tuple[str, str], ...]  # board and outcome of each
    log: str | None = None

    def describe(self) -> str:
        """Summarize a job's progress in one line."""
        tries = ", ".join(f"{board} {outcome}" for board, outcome in self.attempts)
        return f"{self.name}: {self.verdict or 'open'}{f' ({tries})' if tries else ''}"


class JobBatch:
    """The jobs of one batch in a store, as seen by one client."""

    def __init__(self, store: Store, name: str, owner: Owner) -> None:
        self.name = check_name(name, "batch")
        self._store = store
        self._owner = owner
        self._watch = HeartbeatWatch()

    def add(self, tasks: Sequence[QueuedJob]) -> None:
        """Add jobs; existing ones are left unchanged, so a batch can be resumed."""

        def task(connection: sql.Connection) -> None:
            known = sql.select(JOBS.c.name).where(JOBS.c.batch == self.name)
            there = set(connection.execute(known).scalars())
            rows = [self._row(one) for one in tasks if one.name not in there]
            if rows:
                connection.execute(sql.insert(JOBS), rows)

        self._store.work(task)

    def claim(self, board: str, active: Collection[str]) -> Claim | None:
        """Claim the next job for a board; None if there is none now.

        `active` are the boards that currently take jobs. A board that failed an attempt gets the
        job again only if all other active boards that could run it have failed too.
        """
        token = token_hex(8)
        return self._store.work(lambda c: self._claim(c, board, set(active), token))

    def finish(self, claim: Claim, outcome: Outcome, message: str, log: Path) -> bool:
        """Store an attempt's result; return False if the job was reassigned in the meantime."""
        return self._store.work(
            lambda c: self._finish(c, claim, outcome, message=message, log=str(log))
        )

    def give_up(self, boards: Collection[str], reason: str) -> None:
        """Mark queued jobs unrunnable if none of their boards is left."""

        def task(connection: sql.Connection) -> None:
            for row in self._queued(connection):
                if not set(row["boards"]) & set(boards):
                    _close_job(connection, row["id"], "unrunnable", reason)

        self._store.work(task)

    def open_jobs(self) -> int:
        """Return the number of jobs without a verdict."""
        query = sql.select(sql.func.count()).where(
            JOBS.c.batch == self.name, JOBS.c.state != "done"
        )
        return self._store.work(lambda c: int(c.execute(query).scalar_one()))

    def verdicts(self) -> list[JobVerdict]:
        """Return the state of every job, in insertion order."""
        return self._store.work(self._verdicts)

    def _row(self, task: QueuedJob) -> dict[str, object]:
        return {
            "batch": self.name,
            "name": task.name,
            "spec": job_to_json(task.job),
            "boards": list(task.boards),
            "priority": task.priority,
            "state": "queued",
            "attempt": 0,
        }

    def _queued(self, connection: sql.Connection) -> list[Mapping[str, Any]]:
        query = sql.select(JOBS).where(JOBS.c.batch == self.name, JOBS.c.state == "queued")
        ordered = query.order_by(JOBS.c.priority.desc(), JOBS.c.id)
        return [dict(row) for row in connection.execute(ordered).mappings()]

    def _claim(
        self, connection: sql.Connection, board: str, active: set[str], token: str
    ) -> Claim | None:
        mine = sql.select(ATTEMPTS.c.job).where(ATTEMPTS.c.claim == token)
        already = connection.execute(mine).scalar()
        if already is not None:  # an earlier commit succeeded although its connection failed
            job = connection.execute(sql.select(JOBS).where(JOBS.c.id == already))
            return _claim_of(dict(job.mappings().one()), board, token)
        self._sweep(connection)
        for row in self._queued(connection):
            if board not in row["boards"]:
                continue
            tried = _tried(connection, row["id"])
            if board in tried and not active & set(row["boards"]) <= tried:
                continue
            return self._start(connection, row, board, token)
        return None

    def _start(
        self, connection: sql.Connection, row: Mapping[str, Any], board: str, token: str
    ) -> Claim:
        attempt = row["attempt"] + 1
        values = {"state": "running", "attempt": attempt}
        connection.execute(sql.update(JOBS).where(JOBS.c.id == row["id"]).values(values))
        owner = {**self._owner.columns(), "beat": 0, "since": now()}
        columns = {"job": row["id"], "attempt": attempt, "board": board, "claim": token}
        connection.execute(sql.insert(ATTEMPTS), {**owner, **columns})
        return _claim_of({**row, "attempt": attempt}, board, token)

    def _finish(
        self, connection: sql.Connection, claim: Claim, outcome: Outcome, message: str, log: str
    ) -> bool:
        this = sql.and_(ATTEMPTS.c.job == claim.id, ATTEMPTS.c.attempt == claim.attempt)
        row = connection.execute(sql.select(ATTEMPTS).where(this)).mappings().one()
        if row["outcome"] is not None:  # already stored by our retried commit, or swept
            return bool(row["outcome"] == outcome and row["log"] == log)
        values = {"outcome": outcome, "message": message, "log": log}
        connection.execute(sql.update(ATTEMPTS).where(this).values(values))
        _settle(connection, claim.id, claim.attempt, outcome=outcome, message=message)
        return True

    def _sweep(self, connection: sql.Connection) -> None:
        """Requeue the jobs of dead clients."""
        running = sql.select(ATTEMPTS).join(JOBS, JOBS.c.id == ATTEMPTS.c.job)
        running = running.where(JOBS.c.batch == self.name, ATTEMPTS.c.outcome.is_(None))
        for row in [dict(row) for row in connection.execute(running).mappings()]:
            if self._watch.is_gone(row):
                this = sql.and_(ATTEMPTS.c.job == row["job"], ATTEMPTS.c.attempt == row["attempt"])
                message = f"the client {row['label']} ended"
                values = {"outcome": "infrastructure", "message": message}
                connection.execute(sql.update(ATTEMPTS).where(this).values(values))
                _settle(
                    connection,
                    row["job"],
                    row["attempt"],
                    outcome="infrastructure",
                    message=message,
                )

    def _verdicts(self, connection: sql.Connection) -> list[JobVerdict]:
        jobs = connection.execute(
            sql.select(JOBS).where(JOBS.c.batch == self.name).order_by(JOBS.c.id)
        ).mappings().all()  # fmt: skip
        attempts: dict[int, list[tuple[str, str]]] = {row["id"]: [] for row in jobs}
        logs: dict[int, str] = {}
        query = sql.select(ATTEMPTS).order_by(ATTEMPTS.c.job, ATTEMPTS.c.attempt)
        for row in connection.execute(query).mappings():
            if row["job"] in attempts:
                attempts[row["job"]].append((row["board"], row["outcome"] or "running"))
                logs |= {row["job"]: row["log"]} if row["log"] else {}
        return [
            JobVerdict(
                row["name"],
                row["verdict"],
                row["message"] or "",
                attempts=tuple(attempts[row["id"]]),
                log=logs.get(row["id"]),
            )
            for row in jobs
        ]


def batches(store: Store) -> dict[str, tuple[int, int]]:
    """Return the batches of a store, oldest first, with their counts of jobs and open jobs."""
    opened = sql.func.sum(sql.case((JOBS.c.state != "done", 1), else_=0))
    query = sql.select(JOBS.c.batch, sql.func.count(), opened)
    query = query.group_by(JOBS.c.batch).order_by(sql.func.min(JOBS.c.id))
    rows = store.work(lambda connection: connection.execute(query).all())
    return {name: (int(count), int(unfinished)) for name, count, unfinished in rows}


def job_to_json(job: Job) -> dict[str, object]:
    """Return a job as JSON, with absolute file paths."""
    return {
        "program": str(job.program.absolute()),
        "args": list(job.args),
        "inputs": _to_json(job.inputs),
        "libraries": _to_json(job.libraries),
        "outputs": list(job.outputs),
        "time_limit_s": job.time_limit_s,
        "limits": asdict(job.limits),
    }


def _to_json(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: str(path.absolute()) for name, path in files.items()}


def _from_json(files: Mapping[str, str]) -> dict[str, Path]:
    return {name: Path(path) for name, path in files.items()}


def job_from_json(values: Mapping[str, Any]) -> Job:
    """Read a job written by `job_to_json`."""
    return Job(
        program=Path(values["program"]),
        args=tuple(values["args"]),
        inputs=_from_json(values["inputs"]),
        libraries=_from_json(values.get("libraries", {})),
        outputs=tuple(values["outputs"]),
        time_limit_s=values["time_limit_s"],
        limits=CommandLimits(**values["limits"]),
    )


def _claim_of(row: Mapping[str, Any], board: str, token: str) -> Claim:
    return Claim(
        row["id"],
        row["name"],
        job_from_json(row["spec"]),
        board=board,
        attempt=row["attempt"],
        token=token,
    )


def _tried(connection: sql.Connection, job: int) -> set[str]:
    query = sql.select(ATTEMPTS.c.board).where(ATTEMPTS.c.job == job)
    return set(connection.execute(query).scalars())


def _settle(
    connection: sql.Connection, job: int, attempt: int, outcome: Outcome, message: str
) -> None:
    """Record a job's verdict, or requeue it if the board was at fault."""
    if outcome != "infrastructure":
        _close_job(connection, job, outcome, message)
    elif attempt >= MOST_ATTEMPTS:
        reason = f"{attempt} attempts failed without its fault; the last: {message}"
        _close_job(connection, job, "unrunnable", reason)
    else:
        values = {"state": "queued", "message": message}
        connection.execute(sql.update(JOBS).where(JOBS.c.id == job).values(values))


def _close_job(connection: sql.Connection, job: int, verdict: str, message: str) -> None:
    values = {"state": "done", "verdict": verdict, "message": message}
    connection.execute(sql.update(JOBS).where(JOBS.c.id == job).values(values))
