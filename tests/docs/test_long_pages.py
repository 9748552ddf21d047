"""Follow tutorials that train for half a minute exactly as a reader would."""

from pathlib import Path

import pytest

from pockengine.backends.native.decoder import find_decoder
from pockengine.tests.docs.page import LONG, METHODS, ROOT, follow


@pytest.mark.skipif(find_decoder() is None, reason="no stb_image: apt-get install libstb-dev")
@pytest.mark.parametrize("page", LONG)
def test_the_code_of_a_page_runs(page: str, environment: dict[str, str]) -> None:
    follow(ROOT / page, Path.cwd(), environment)


@pytest.mark.parametrize("page", METHODS)
def test_a_page_of_a_method_continues_with_a_model(page: str, environment: dict[str, str]) -> None:
    assert LONG[0].removeprefix("docs/") in (ROOT / page).read_text(), "say where the page begins"
    follow(ROOT / LONG[0], Path.cwd(), environment, first=1)
    follow(ROOT / page, Path.cwd(), environment)
