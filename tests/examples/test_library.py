"""The C and C++ examples, built with an artifact's library as users would."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pockengine import __version__
from pockengine.backends.artifact import Artifact, write_artifact
from pockengine.backends.native.build import link_flags, linker
from pockengine.backends.native.toolchain import find_toolchain
from pockengine.compiler.ir import F32, I64, Builder, Graph, TensorType
from pockengine.devices import load_device
from pockengine.tests.backends.c.programs import compile_for
from pockengine.tests.backends.c.sealed import texts_of

EXAMPLES = Path(__file__).parents[2] / "examples"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
SYSTEM = ("-lpthread", "-lm")
MUSL = {"__errno_location": "__errno"}
"""Functions behind musl's macros -> their names in bionic."""


def classifier(name: str, size: int) -> Graph:
    """Return a graph of a hidden layer and a head of two classes."""
    graph = Graph(name)
    g = Builder(graph)
    x = g.input("x", TensorType(F32, (8, size)))
    target = g.input("target", TensorType(I64, (8,)))
    hidden, head = g.param("hidden", _ramp(size, 16)), g.param("head", _ramp(16, 2))
    logits = g.matmul(g.relu(g.matmul(x, hidden)), head)
    g.output("logits", logits)
    g.output("loss", g.cross_entropy(logits, target))
    return graph


def _ramp(rows: int, columns: int) -> np.ndarray:
    return np.linspace(-0.2, 0.2, rows * columns, dtype=np.float32).reshape(rows, columns)


def new_artifact(folder: Path, device: str, name: str, size: int) -> Artifact:
    program, backend = compile_for(classifier(name, size), load_device(device))
    return write_artifact(program, backend, folder / name)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return new_artifact(tmp_path_factory.mktemp("host"), "host", "digits", 64)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return new_artifact(tmp_path_factory.mktemp("host"), "host", "words", 32)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return new_artifact(tmp_path_factory.mktemp("rpi4"), "rpi4", "digits", 64)


def call(command: Sequence[object], folder: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def library(artifact: Artifact, kind: str = "a") -> Path:
    return artifact.folder / "lib" / f"libpockengine-{artifact.name}.{kind}"


def zig(source: Path, include: Path, archive: Path, out: Path) -> None:
    """Compile for the rpi4, and link with the C library of artifacts."""
    device = load_device("rpi4")
    toolchain = find_toolchain(device)
    made = out.with_suffix(".o")
    compile_ = [*toolchain.command, "-std=c99", "-O3", "-g0", "-fPIC", f"-I{include}", "-c"]
    for command in (
        [*compile_, source, "-o", made],
        [*linker(toolchain.command), made, archive, "-o", out, *link_flags(device)],
    ):
        done = subprocess.run(
            command, env=toolchain.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def emulator() -> list[str]:
    if shutil.which("qemu-aarch64") is None:
        pytest.skip("qemu-aarch64 is not installed (apt-get install qemu-user)")
    return ["qemu-aarch64", "-cpu", "cortex-a72"]


def check_c_example(command: Sequence[object], artifact: Artifact, folder: Path) -> None:
    output = call([*command, artifact.weights, folder / "checkpoint"])
    assert "step 40: loss" in output
    assert output.endswith("resumed equals uninterrupted\n")
    assert texts_of(folder / "checkpoint")["pockengine.steps"] == "40"


@pytest.mark.parametrize("kind", ["a", "so"])
def test_the_c_example_trains_and_resumes(digits: Artifact, tmp_path: Path, kind: str) -> None:
    files = [f"-I{digits.folder / 'include'}", EXAMPLES / "c" / "train.c", library(digits, kind)]
    out = tmp_path / "train"
    rpath = f"-Wl,-rpath,{digits.folder / 'lib'}"
    call(["gcc", "-std=c99", *STRICT, *files, "-o", out, rpath, *SYSTEM])
    check_c_example([out], digits, tmp_path)


@pytest.mark.parametrize("kind", ["a", "so"])
def test_the_cpp_example_trains_two_programs_at_once(
    digits: Artifact, words: Artifact, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "train"
    files = [EXAMPLES / "cpp" / "train.cpp", library(digits, kind), library(words, kind)]
    places = [f"-I{artifact.folder / 'include'}" for artifact in (digits, words)]
    places += [f"-Wl,-rpath,{artifact.folder / 'lib'}" for artifact in (digits, words)]
    call(["g++", "-std=c++11", *STRICT, *places, *files, "-o", out, *SYSTEM])
    output = call([out, digits.weights, words.weights])
    assert "digits: loss" in output
    assert "words: loss" in output


@pytest.mark.parametrize("language", [("gcc", "c", "c99"), ("g++", "c++", "c++11")])
def test_every_header_compiles_alone(digits: Artifact, language: tuple[str, str, str]) -> None:
    compiler, kind, standard = language
    include = digits.folder / "include"
    headers = sorted(include.glob("*.h"))
    assert [path.name for path in headers] == [
        *("pe.h", "pe_adapter.h", "pe_chat.h", "pe_generate.h", "pe_host.h", "pe_limits.h"),
        *("pe_program_digits.h", "pe_texts.h", "pe_tokenizer.h", "pe_train.h"),
    ]
    for header in headers:
        checked = ["-fsyntax-only", "-x", kind, f"-std={standard}", *STRICT]
        text = f'#include "{header.name}"\n#include "{header.name}"\nint used;\n'
        done = subprocess.run(
            [compiler, *checked, f"-I{include}", "-"], input=text, text=True, capture_output=True
        )
        assert done.returncode == 0, done.stderr


def test_a_library_exports_only_its_interface(digits: Artifact) -> None:
    shown = {
        line.split()[-1]
        for line in call(["nm", "-D", library(digits, "so")]).splitlines()
        if line.split()[-2] not in "Uw"
    }
    assert {"pe_program_digits", "pe_init_by", "pe_train", "pe_open_by"} <= shown
    assert all(name.startswith("pe_") and "__" not in name for name in shown), shown
    assert "main" not in call(["nm", library(digits)]).split()


def test_pkg_config_and_cmake_find_the_library(digits: Artifact, tmp_path: Path) -> None:
    for tool in ("pkg-config", "cmake"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    place = digits.folder / "lib" / "pkgconfig"
    version = ["pkg-config", f"--with-path={place}", "--modversion", "pockengine-digits"]
    assert call(version).strip() == __version__
    flags = call(["pkg-config", f"--with-path={place}", "--cflags", "--libs", "pockengine-digits"])
    assert "-fno-strict-aliasing" in flags.split()
    out = tmp_path / "train"
    rpath = f"-Wl,-rpath,{digits.folder / 'lib'}"
    call(["gcc", EXAMPLES / "c" / "train.c", "-o", out, *flags.split(), rpath])
    check_c_example([out], digits, tmp_path)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\n"
        f"find_package(pockengine-digits {__version__} EXACT REQUIRED)\n"
        "find_package(pockengine-digits 9.0 QUIET)\n"
        "if(pockengine-digits_FOUND)\n  message(FATAL_ERROR taken)\nendif()\n"
        f"add_executable(found {EXAMPLES}/c/train.c)\n"
        "target_link_libraries(found pockengine::digits)\n"
    )
    call(["cmake", "-B", tmp_path / "b", f"-DCMAKE_PREFIX_PATH={digits.folder}", tmp_path])
    built = call(["cmake", "--build", tmp_path / "b", "--verbose"])
    compiled = [line for line in built.splitlines() if line.endswith("examples/c/train.c")]
    assert compiled
    assert all("-fno-strict-aliasing" in line for line in compiled)
    check_c_example([tmp_path / "b" / "found"], digits, tmp_path)


def test_the_sources_build_with_the_callers_toolchain(digits: Artifact, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\n"
        f"add_subdirectory({digits.folder}/code code)\n"
        f"add_executable(built {EXAMPLES}/c/train.c)\n"
        "target_link_libraries(built pockengine::digits)\n"
    )
    native = "-DCMAKE_C_FLAGS=-march=native"
    call(["cmake", "-B", tmp_path / "b", native, tmp_path])
    call(["cmake", "--build", tmp_path / "b", "-j2"])
    check_c_example([tmp_path / "b" / "built"], digits, tmp_path)


def test_the_sources_use_only_symbols_of_bionic(board: Artifact, tmp_path: Path) -> None:
    """zig lacks Android's headers; musl's stand in, so only names are compared, not types."""
    code = board.folder / "code"
    sources = [path for path in code.rglob("*.c") if "runner" not in path.parts]
    toolchain = find_toolchain(load_device("rpi4"))
    compiler = toolchain.command[0]
    headers = Path(compiler).parent / "lib" / "libc" / "include"
    found = ("aarch64-linux-musl", "generic-musl", "aarch64-linux-any", "any-linux-any")
    runtime = code / "runtime"
    folders = [code, runtime, *(path for path in runtime.iterdir() if path.name != "bare")]
    done = subprocess.run(
        [
            *(compiler, "cc", "-target", "aarch64-linux-android"),
            *("-nostdlibinc", *(f"-isystem{headers / name}" for name in found)),
            *("-c", "-O3", "-std=gnu11", "-fPIC", "-fno-math-errno", "-mcpu=cortex_a76"),
            *(f"-I{folder}" for folder in folders),
            *(str(path) for path in sources if path.name != "main.c"),
        ],
        cwd=tmp_path,
        env=toolchain.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = call(["nm", *tmp_path.glob("*.o")]).splitlines()
    symbols = [line.split()[-2:] for line in lines if len(line.split()) > 1]
    used = {name for kind, name in symbols if kind == "U"} - {n for k, n in symbols if k != "U"}
    bionic = set((Path(__file__).parent / "bionic.txt").read_text().split("\n\n")[1].split())

    assert {"mmap", "pthread_create"} <= used
    assert {MUSL.get(name, name) for name in used} <= bionic


def test_links_of_android_apps_are_aligned_to_16_kb(digits: Artifact, tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\nset(ANDROID TRUE)\n"
        f"add_subdirectory({digits.folder}/code code)\n"
        f"add_library(app SHARED {EXAMPLES}/c/train.c)\n"
        "target_link_libraries(app pockengine::digits)\n"
    )
    call(["cmake", "-B", tmp_path / "b", "-DCMAKE_C_FLAGS=-march=native -O0", tmp_path])
    call(["cmake", "--build", tmp_path / "b", "-j2"])
    headers = call(["readelf", "-lW", tmp_path / "b" / "libapp.so"]).splitlines()
    aligned = [line.split()[-1] for line in headers if line.split()[:1] == ["LOAD"]]
    assert set(aligned) == {"0x4000"}


def test_the_c_example_runs_on_the_emulated_board(board: Artifact, tmp_path: Path) -> None:
    out = tmp_path / "train"
    zig(EXAMPLES / "c" / "train.c", board.folder / "include", library(board), out)
    check_c_example([*emulator(), out], board, tmp_path)
