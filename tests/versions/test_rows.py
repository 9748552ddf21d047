"""Every release of the table passes; takes hours, and downloads gigabytes."""

from pathlib import Path

import pytest

from pockengine.tests.versions.run import run
from pockengine.tests.versions.table import RELEASES, Row, rows


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("row", rows().values(), ids=lambda row: row.name)
def test_release_passes(row: Row, release: str, tmp_path: Path) -> None:
    result = run(row, release, tmp_path)

    assert result.passed, result.words
