"""Every page with an emulated board is followed as a reader would, word by word."""

from pathlib import Path

import pytest

from pockengine.tests.docs.page import ROOT, WITH_BOARDS, follow
from pockengine.tests.farm.helpers import needs_qemu


@needs_qemu
@pytest.mark.parametrize("page", WITH_BOARDS)
def test_a_page_does_what_it_says(page: str, environment: dict[str, str]) -> None:
    follow(ROOT / page, Path.cwd(), environment)
