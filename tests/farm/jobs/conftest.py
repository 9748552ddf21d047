"""Two emulated boards for a file of tests, and a client of them for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pockengine.farm.jobs.leases import Leases
from pockengine.farm.jobs.worker import Site
from pockengine.tests.farm.jobs.site import new_site
from pockengine.tests.farm.rack import Rack


@pytest.fixture(name="rack", scope="module")
def a_rack() -> Iterator[Rack]:
    with Rack(["left", "right"]) as rack:
        yield rack


@pytest.fixture(name="site")
def a_client(rack: Rack, tmp_path: Path) -> Iterator[Site]:
    rack.reset()
    with new_site(tmp_path, rack) as site:
        yield site
        assert isinstance(site.leases, Leases)
        assert site.leases.leased() == []
    rack.reset()
    for board in rack.boards:
        with rack.open(board) as transport:
            left = transport.run(["sh", "-c", "ls /jobs/jobs; ls -l /proc/[0-9]*/cwd | grep jobs/"])
            assert (board.name, left.stdout) == (board.name, b"")
