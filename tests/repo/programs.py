"""The programs in BUILD files print their help.

Those of a framework run in one process, which imports it once, from the main files of their
targets. Workers of the bench print none: tests/farm/references and tests/farm/bench start them.
"""

import os
import re
import runpy
import sys
from collections.abc import Callable

import pytest

from pockengine.tests.repo.deps import programs
from pockengine.tests.repo.targets import targets


def help_test(framework: str) -> Callable[..., None]:
    """Return the test of all programs with a framework's wheels."""

    @pytest.mark.skipif("TEST_SRCDIR" not in os.environ, reason="Bazel separates frameworks")
    # Another program has imported some of them.
    @pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
    @pytest.mark.parametrize("label", programs(framework))
    def test_it_prints_help(
        label: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main = targets()[label].sources[0]
        monkeypatch.setattr(sys, "argv", [main, "--help"])

        with pytest.raises(SystemExit) as ended:
            runpy.run_module(module(main), run_name="__main__")

        assert not ended.value.code
        printed = capsys.readouterr().out
        assert re.match("usage|Usage", printed), printed

    return test_it_prints_help


def module(source: str) -> str:
    """Return the module of a source."""
    return "pockengine." + source.removesuffix(".py").replace("/", ".")
