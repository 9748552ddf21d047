"""Every command exists; help imports no command; a missing package is reported at once."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from pockengine import extras
from pockengine.cli.commands import ROWS
from pockengine.cli.main import cli
from pockengine.errors import MissingPackage
from pockengine.farm.cli.main import cli as farm


@pytest.mark.parametrize("name", ROWS)
def test_each_command_exists_and_has_help(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])

    assert result.exit_code == 0, result.output
    assert f"{name} [OPTIONS]" in result.output


@pytest.mark.parametrize("name", ROWS)
def test_help_has_an_example_and_fits_the_terminal(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"], terminal_width=80)

    lines = result.output.splitlines()
    assert f"    pockengine {ROWS[name].example}" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", ROWS)
def test_an_example_has_valid_arguments(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    first, *words = ROWS[name].example.split()
    flags = {flag for part in command.params for flag in part.opts}
    arguments = [part for part in command.params if isinstance(part, click.Argument)]
    positional = [word for place, word in enumerate(words) if _is_argument(place, words, command)]

    assert first == name
    assert {word for word in words if word.startswith("--")} <= flags
    assert sum(part.required for part in arguments) <= len(positional) <= len(arguments)


def _is_argument(place: int, words: list[str], command: click.Command) -> bool:
    """Return whether a word is neither an option nor an option's value."""
    if words[place].startswith("--"):
        return False
    before = words[place - 1] if place else ""
    taken = next((part for part in command.params if before in part.opts), None)
    return not (isinstance(taken, click.Option) and not taken.is_flag)


def test_help_lists_all_and_imports_no_command() -> None:
    program = (
        "import sys; from pockengine.cli.main import cli; cli(['--help'], standalone_mode=False); "
        "print(sorted({'numpy', 'torch', 'sqlalchemy', 'rich'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr
    assert all(f"  {name} " in ran.stdout for name in ROWS)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_usage_error_of_a_decoder_command_imports_no_framework() -> None:
    program = (
        "import sys; from pockengine.cli.main import cli\n"
        "for name in ('finetune-lm', 'compile-lm', 'plan-lm'):\n"
        "    cli.get_command(None, name)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["[]"], ran.stderr


def test_all_farm_commands_are_included() -> None:
    context = click.Context(cli)

    assert {name: cli.get_command(context, name) for name in farm.commands} == farm.commands


def test_a_missing_package_is_reported_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "paramiko" else name)

    result = CliRunner().invoke(cli, ["ping", "nosuch"])

    assert isinstance(result.exception, MissingPackage)
    assert str(result.exception) == (
        f"pockengine ping needs paramiko, not installed here: {extras.pip_command('farm')}"
    )


def test_names_are_completed() -> None:
    result = CliRunner().invoke(
        cli,
        prog_name="pockengine",
        env={
            "_POCKENGINE_COMPLETE": "bash_complete",
            "COMP_WORDS": "pockengine com",
            "COMP_CWORD": "1",
        },
    )

    assert result.output.split() == [
        "plain,compile",
        "plain,compile-lm",
        "plain,compile-time",
        "plain,compare",
        "plain,completion",
    ]
