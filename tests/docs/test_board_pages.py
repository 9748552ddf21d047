"""Follow every page with an emulated board exactly as a reader would."""

import shutil
from pathlib import Path

import pytest

from pockengine.tests.docs.page import FARM, PHONE, ROOT, WITH_BOARDS, follow
from pockengine.tests.farm.helpers import needs_qemu


def needs(page: str) -> pytest.MarkDecorator:
    if page != PHONE:
        return needs_qemu
    missing = [tool for tool in ("adb", "qemu-aarch64") if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} not installed")


def marks(page: str) -> list[pytest.MarkDecorator]:
    return [needs(page), *([pytest.mark.nightly] if page == FARM else [])]


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in WITH_BOARDS])
def test_the_code_of_a_board_page_runs(page: str, environment: dict[str, str]) -> None:
    follow(ROOT / page, Path.cwd(), environment)
