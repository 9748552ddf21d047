"""A short run of soak.py, and a client that is killed while it works."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from pockengine.farm.jobs.job import Job
from pockengine.farm.jobs.leases import Leases
from pockengine.tests.farm.helpers import eventually, needs_qemu, script
from pockengine.tests.farm.jobs.site import new_site, run
from pockengine.tests.farm.jobs.soak import soak
from pockengine.tests.farm.rack import Rack

pytestmark = needs_qemu

# A client with its own board that runs the batch's jobs and reports its progress.
CLIENT = """
import sys, threading, time
from pathlib import Path
from pockengine.farm.jobs.job import Job
from pockengine.tests.farm.rack import Rack
from pockengine.tests.farm.jobs.site import new_site, run
folder = Path(sys.argv[1])
with Rack(["board"]) as rack, new_site(folder, rack) as site:
    def tell():
        while True:
            machine = rack._supplies["board"].machine
            done = sum(one.verdict is not None for one in site.batch.verdicts())
            print(done, machine.process.pid if machine else 0, flush=True)
            time.sleep(0.2)
    site.batch.add([])
    threading.Thread(target=tell, daemon=True).start()
    run(site, {f"job{i}": Job(folder / "job.sh") for i in range(8)}, rack.boards)
"""


def test_verdicts_are_right_while_boards_lose_power(tmp_path: Path) -> None:
    result = soak(tmp_path, jobs=24, boards=2, kills=2)

    assert result.wrong() == []
    assert result.killed == 2


def test_killed_client_loses_no_job_and_holds_no_board(tmp_path: Path) -> None:
    job = script(tmp_path, "sleep 0.5; echo fine", "job.sh")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CLIENT, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as client:
        assert client.stdout is not None
        done = qemu = 0
        while done < 2:
            done, qemu = map(int, client.stdout.readline().split())
        client.send_signal(signal.SIGKILL)
        client.wait(10)
    assert ended(qemu)

    with Rack(["board"]) as rack, new_site(tmp_path, rack) as site:
        verdicts = run(site, {f"job{i}": Job(job) for i in range(8)}, rack.boards)

        assert {one.verdict for one in verdicts.values()} == {"passed"}
        assert sum(len(one.attempts) == 2 for one in verdicts.values()) <= 1
        assert isinstance(site.leases, Leases)
        assert site.leases.leased() == []


def ended(pid: int) -> bool:
    """Return whether a process has ended, or ends soon."""

    def gone() -> bool:
        try:
            return not Path(f"/proc/{pid}/cmdline").read_bytes()  # a zombie has none
        except OSError:
            return True

    return eventually(gone)
