"""Install releases of frameworks, and run a layer and the tests with each.

python -m pockengine.tests.versions.run --framework torch --release newest

Each release has a fresh pip environment linked to the tree, which is deleted at the end.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import click

from pockengine.tests.versions.table import RELEASES, ROOT, Result, Row, record, rows

TOOLS = ("hypothesis", "pillow", "pytest", "scikit-learn")
"""Packages needed by the tests."""


@click.command()
@click.option("--framework", multiple=True, type=click.Choice(list(rows())), help="By default all.")
@click.option("--release", multiple=True, type=click.Choice(RELEASES), help="By default both.")
@click.option("--record", "file", type=click.Path(path_type=Path), help="Append lines of JSON.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep environments in this folder.")
def main(
    framework: Sequence[str], release: Sequence[str], file: Path | None, keep: Path | None
) -> None:
    """Run rows of the table and print their results; the exit status is 1 if one failed."""
    done = []
    for name in framework or rows():
        for which in release or RELEASES:
            with tempfile.TemporaryDirectory() as folder:
                place = keep / f"{name}-{which}" if keep else Path(folder)
                result = run(rows()[name], which, place)
            done.append(result)
            verdict = "passes" if result.passed else "FAILS"
            versions = ", ".join(f"{key} {one}" for key, one in result.versions.items())
            click.echo(f"{name:13} {which:7} {verdict:7} {result.date} {versions}: {result.words}")
            if file is not None:
                record([result], file)
    sys.exit(not all(result.passed for result in done))


def run(row: Row, release: str, folder: Path) -> Result:
    """Test one release with its layer and its tests, in an environment in this folder."""
    requirements = row.requirements(release)
    try:
        python = environment(requirements, folder)
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip().splitlines()[-1][:100]
        return Result(row.name, release, {}, _today(), False, f"pip: {words}")
    versions = _versions(python, requirements)
    outputs = []
    if row.layer:
        outputs.append(_called(python, "-m", "pockengine.cli.one_layer", row.layer))
    tests = [str(ROOT / test) for test in row.tests]
    options = ("-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-rfE")
    outputs.append(_called(python, "-m", "pytest", *options, *tests))
    for output in outputs:
        if output.returncode:
            click.echo(output.stdout[-6000:] + output.stderr[-2000:], err=True)
    passed = all(output.returncode == 0 for output in outputs)
    last = (outputs[-1].stdout.strip().splitlines() or [""])[-1]
    words = re.sub(r" in [\d.]+s.*|, \d+ warnings?", "", last).strip("= ")
    return Result(row.name, release, versions, _today(), passed, words)


def environment(requirements: Sequence[str], folder: Path) -> Path:
    """Return an environment's interpreter, with these requirements, the package and test tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = [*requirements, *project["dependencies"], *TOOLS]
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        _checked(sys.executable, "-m", "venv", "--clear", str(folder))
        _checked(str(python), "-m", "pip", "install", "--quiet", *expected)
        (folder / "complete").touch()
    link = next(folder.glob("lib/python*/site-packages")) / "pockengine"
    link.unlink(missing_ok=True)
    link.symlink_to(ROOT)
    return python


def _versions(python: Path, requirements: Sequence[str]) -> dict[str, str]:
    """Return the installed releases of a row's packages."""
    folders = [str(folder) for folder in python.parents[1].glob("lib/python*/site-packages")]
    installed = {
        _normal(part.metadata["Name"]): part.version
        for part in importlib.metadata.distributions(path=folders)
    }
    names = [re.split(r"[\[<>=]", one)[0] for one in requirements]
    return {name: installed[_normal(name)].partition("+")[0] for name in names}


def _normal(name: str) -> str:
    """Return the normalized name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _called(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *arguments],
        cwd=python.parent,
        env={**inherited, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
        capture_output=True,
        text=True,
    )


def _checked(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _today() -> str:
    return date.today().isoformat()


if __name__ == "__main__":
    main()
