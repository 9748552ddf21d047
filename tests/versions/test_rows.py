"""Every release of the table passes; this takes hours and downloads gigabytes.

pytest tests/versions/test_rows.py runs it; a run of the whole folder skips it.
"""

from pathlib import Path

import pytest

from pockengine.tests.versions.run import run
from pockengine.tests.versions.table import RELEASES, Row, rows


@pytest.fixture(autouse=True)
def _skip_unless_requested(request: pytest.FixtureRequest) -> None:
    named = [Path(argument.partition("::")[0]).name for argument in request.config.args]
    if Path(__file__).name not in named:
        pytest.skip("it installs gigabytes: run pytest tests/versions/test_rows.py")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("row", rows().values(), ids=lambda row: row.name)
def test_release_passes(row: Row, release: str, tmp_path: Path) -> None:
    result = run(row, release, tmp_path)

    assert result.passed, result.words
