"""The command line: its output, its files, its errors."""

import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pockengine import __version__, api
from pockengine.cli.main import cli, main
from pockengine.compiler.ir import F32, Builder, Graph, TensorType
from pockengine.compiler.ir.text import parse_graph
from pockengine.devices import known_devices, load_device
from pockengine.errors import FarmError
from pockengine.signals import ending_on_signals


def test_compile_writes_an_artifact_and_every_graph(tmp_path: Path) -> None:
    folder, dump = tmp_path / "cnn", tmp_path / "ir"
    arguments = ["compile", "cnn-8", "--out", str(folder), "--dump-ir", str(dump)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "train:" in result.output
    assert "arena" in result.output
    graphs = sorted(dump.glob("*.ir"))
    assert [path.name.split(".")[1] for path in graphs[:2]] == ["train", "train"]
    assert any("predict" in path.name for path in graphs)
    for path in graphs:
        parse_graph(path.read_text())
    shown = CliRunner().invoke(cli, ["inspect", str(folder)])
    assert shown.exit_code == 0
    assert "target i64[1]" in shown.output


FACTORIES = """
import torch

def sized(batch):
    return torch.nn.Sequential(torch.nn.Linear(3, 2)), (torch.randn(batch, 3),)

def usual(batch: int = 6):
    return sized(batch)

def fixed():
    return sized(5)
"""


@pytest.mark.parametrize(
    ("model", "options", "rows"),
    [
        ("factories:sized", ["--batch", "4"], 4),
        ("factories:sized", [], 1),
        ("factories:usual", [], 6),
        ("factories:usual", ["--batch", "2"], 2),
        ("factories:fixed", [], 5),
        ("cnn-8", ["--batch", "3"], 3),
    ],
)
def test_batch_is_the_number_of_example_rows(
    model: str, options: list[str], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = str(tmp_path / "net")

    compiled = CliRunner().invoke(cli, ["compile", model, *options, "--no-check", "--out", folder])

    assert compiled.exit_code == 0, compiled.output
    assert f"target i64[{rows}]" in CliRunner().invoke(cli, ["inspect", folder]).output


@pytest.mark.parametrize("batch", ["1", "8"])
def test_batch_for_a_function_without_one_is_an_error(
    batch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factories.py").write_text(FACTORIES)
    monkeypatch.syspath_prepend(str(tmp_path))

    result = CliRunner().invoke(cli, ["compile", "factories:fixed", "--batch", batch])

    assert f"--batch {batch} has no effect" in str(result.exception)


@pytest.mark.parametrize("width", ["50", "200"])
def test_devices_are_listed(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = CliRunner().invoke(cli, ["devices"]).output.splitlines()
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == list(known_devices())
    descriptions = " ".join(load_device(name).description for name in names)
    column = max(map(len, names)) + 1
    assert " ".join(line[column:] for line in lines).split() == descriptions.split()


def test_the_text_below_the_models_fills_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CliRunner().invoke(cli, ["models"]).output.splitlines()
    text = lines[next(i for i, line in enumerate(lines) if line.startswith("MODEL may")) : -1]
    assert all(60 < len(line) <= 80 for line in text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "alexnet-7"], "unknown model 'alexnet' in 'alexnet-7'; known: "),
        (["train", "nowhere", "--data", "file", "--steps", "1"], "there is no such folder"),
        (["compile", "cnn-8", "--device", "toaster"], "unknown device 'toaster'"),
        (["compile", "cnn-8", "--scheme", "nothing.toml"], "nothing.toml"),
        (["compile", "no.such.place:make"], "package.module:function"),
        (["inspect", "nowhere"], "unknown model 'nowhere'; known: "),
        (
            ["inspect", "net.py"],
            "net.py is no file of a model: name a function in it, net:FUNCTION",
        ),
        (["inspect", "file"], "file is no file of a model: those end in .onnx"),
        (["inspect", "no\x1b[31m\rwhere"], "unknown model 'no\\x1b[31m\\rwhere'"),
        (["compile", "built"], "built is an artifact, already compiled; give the MODEL"),
        (
            ["train", "file", "--data", "file", "--steps", "1"],
            "file is no artifact: it is a file",
        ),
        (["passes", "file"], "file: line 1: expected `graph NAME {`, found nothing; give a file"),
        (["compile", "cnn-8", "--out", "file"], "file is no folder"),
        (["compile", "cnn-8", "--out", "file/net"], "file is a file, not a folder"),
        (["compile", "cnn-8", "--out", "."], "exists and is not an unmodified artifact"),
        (["compile", "cnn-8", "--dump-ir", "file"], "cannot be written to file"),
    ],
)
def test_expected_errors_are_one_plain_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "net.py").touch()
    (tmp_path / "built").mkdir()
    (tmp_path / "built" / "manifest.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pockengine", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    text = str(ended.value.code)
    assert text.startswith("pockengine: ")
    assert message in text


def test_names_are_shown_literally(tmp_path: Path) -> None:
    name = "[/red]:bomb: \x1b[31m*/"
    g = Builder(Graph(name))
    x = g.input(name, TensorType(F32, (2,)))
    g.output(
        "loss", g.reduce_mean(g.mul(x, g.param(f"w{name}", np.ones(2, np.float32))), axes=(0,))
    )
    folder = api.compile(g.graph, (), folder=tmp_path / "net").artifact.folder
    result = CliRunner().invoke(cli, ["inspect", str(folder)], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "w[/red]:bomb: \\x1b[31m*/ full" in result.output
    assert "\x1b" not in result.output


def test_errors_escape_terminal_controls() -> None:
    error = FarmError("layer \x1b]0;x\x07 \u202e \x9b31m\nnext")
    assert str(error) == "layer \\x1b]0;x\\x07 \\u202e \\x9b31m\nnext"


def test_the_version_is_shown_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    result = CliRunner().invoke(cli, ["--version"])
    assert result.output == f"pockengine, version {__version__}\n"


def test_the_module_runs_as_a_program() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pockengine.cli", "inspect", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("pockengine: ")


SWALLOWED = {
    "waiting": "signal.pause()",
    "in a callback": "x = type('X', (), {})(); r = weakref.ref(x, lambda _: signal.pause()); del x",
    "by an except": """
        try:
            signal.pause()
        except BaseException:
            pass
""",
    "held after an except": """
        held = []
        try:
            signal.pause()
        except BaseException as error:
            held.append(error)
""",
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", SWALLOWED)
def test_signals_end_a_command_without_leaving_its_folder(
    place: str, number: signal.Signals
) -> None:
    waits = f"""
import signal, tempfile, weakref
from pockengine.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
def cli():
    with tempfile.TemporaryDirectory() as folder:
        print(folder, flush=True)
        {SWALLOWED[place]}
        while True:
            signal.pause()
main.cli = cli
main.main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", waits], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        folder = Path(command.stdout.readline().strip())
        assert folder.is_dir()
        command.send_signal(number)
        _, stderr = command.communicate()
        assert command.returncode == 128 + number
        assert not stderr
    assert not folder.exists()


def test_the_exit_of_a_command_visits_no_objects() -> None:
    """Objects of a large model: seconds, after SIGTERM too."""
    program = """
import atexit, gc, sys
from pockengine.cli import main
atexit.register(lambda: print(len(gc.get_objects())))
main.cli = lambda: sys.exit(5)
main.main()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 5
    assert int(ran.stdout) < 1000


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ending_on_signals():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_paths_are_relative_to_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # restores the folder that main() changes
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["pockengine", "compile", "cnn-8", "--out", "made/here"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert (tmp_path / "made" / "here" / "manifest.json").is_file()
