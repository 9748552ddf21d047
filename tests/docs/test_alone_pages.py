"""Follow the pages that begin in an empty folder exactly as a reader would."""

import shutil
from pathlib import Path

import pytest

from pockengine.tests.docs.page import ALONE, ROOT, follow


@pytest.mark.parametrize("page", ALONE)
def test_the_code_of_a_page_runs(page: str, environment: dict[str, str]) -> None:
    if "cmake" in (ROOT / page).read_text() and not shutil.which("cmake"):
        pytest.skip("no cmake")
    follow(ROOT / page, Path.cwd(), environment)
