"""The object cache: per CPU, by content, and in the user's folder."""

import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.native import build as module
from pockengine.backends.native import toolchain as toolchains
from pockengine.backends.native.build import build
from pockengine.backends.native.runtime_files import copy_runtime, runtime_sources
from pockengine.backends.native.toolchain import Toolchain, find_toolchain
from pockengine.backends.registry import open_session
from pockengine.compiler.optim import Adam
from pockengine.devices import load_device
from pockengine.errors import BuildError
from pockengine.folders import cache_folder
from pockengine.tests.backends.c.resuming import new_case


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "_link", lambda *_: None)  # linking would build a whole libc
    folder = tmp_path / "code"
    copy_runtime(folder / "runtime")
    for source in runtime_sources(folder / "runtime"):
        source.unlink()
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    return folder


def built(code: Path) -> list[str]:
    """The compiled files, without those from the cache."""
    messages: list[str] = []
    build(code, load_device("rpi4"), code / "out", messages.append)
    return [line for line in messages if line.startswith("compiling main")]


def test_a_damaged_object_is_compiled_again(code: Path) -> None:
    assert built(code)
    assert not built(code)
    (entry,) = cache_folder().glob("objects/*/*.o")
    for damage in (b"", b"\x7fELF", entry.read_bytes()[:-1] + b"!"):
        entry.write_bytes(damage)
        assert built(code)
        assert not built(code)


def test_a_changed_header_changes_the_objects_of_what_includes_it(code: Path) -> None:
    runtime = code / "runtime"
    (code / "main.c").write_text('#include "kernels/a.inc.h"\nint main(void) { return ONE; }\n')
    (runtime / "kernels" / "a.inc.h").write_text('  # include "b.inc.h"\n')
    header = runtime / "kernels" / "b.inc.h"
    header.write_text("#define ONE 1\n")
    assert built(code)
    (runtime / "pe.h").write_text("/* included by none of these */\n")
    assert not built(code)
    header.write_text("#define ONE 0\n")
    assert built(code)


def test_another_cpu_has_other_objects(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host, rpi4 = load_device("host"), load_device("rpi4")
    before, fixed = find_toolchain(host).version, find_toolchain(rpi4).version
    assert find_toolchain(host).version == before
    monkeypatch.setattr(toolchains, "_output_digest", lambda command, environment: "another")
    assert find_toolchain(host).version != before
    assert find_toolchain(rpi4).version == fixed


def test_the_systems_compiler_serves_where_zig_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_zig = trained(tmp_path / "zig")
    monkeypatch.setitem(sys.modules, "ziglang", None)
    by_gcc = trained(tmp_path / "gcc")

    np.testing.assert_allclose(by_gcc, by_zig, rtol=1e-5)
    with pytest.raises(BuildError, match=r"no C compiler for rpi4: .*pip install ziglang"):
        find_toolchain(load_device("rpi4"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"ziglang\), or gcc or clang"):
        find_toolchain(load_device("host"))


def trained(folder: Path) -> list[float]:
    """Build a program for this machine in a folder; return the losses of a few steps."""
    case = new_case(folder, Adam(), 1, "full")
    with open_session(case.artifact) as session:
        return case.train(session, 4)


def test_the_cache_is_its_users_alone(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_folder().chmod(0o755)
    built(code)
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    with pytest.raises(BuildError, match="belongs to another user"):
        built(code)


def test_the_first_program_waits_for_no_library_of_a_sanitizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    toolchain = find_toolchain(load_device("host"))
    source = tmp_path / "main.c"
    source.write_text("int main(void) { return 0; }\n")

    command = [*toolchain.command, str(source), "-o", str(tmp_path / "main")]
    subprocess.run(command, env=toolchain.environment, check=True)

    built = {path.stem for path in (cache_folder() / "zig").rglob("*.a")}
    assert "libcompiler_rt" in built
    assert not {name for name in built if "san" in name}


def test_damaged_libraries_of_the_compiler_are_built_again(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(code.parent / "cache"))
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    toolchain = find_toolchain(load_device("host"))
    library = cache_folder() / "zig" / "libc.a"
    library.parent.mkdir(exist_ok=True)
    library.write_text("junk")

    def run(used: Toolchain, command: list[str], what: str) -> None:
        folder = Path(used.environment["ZIG_GLOBAL_CACHE_DIR"])
        if (folder / "libc.a").exists() and (folder / "libc.a").read_text() == "junk":
            raise BuildError("unknown directive: junk")
        (folder / "libc.a").write_text("sound")

    monkeypatch.setattr(module, "_run", run)
    module._link(toolchain, [], code / "out", [])
    assert library.read_text() == "sound"
    assert [path.name for path in cache_folder().iterdir()] == ["zig"]
    monkeypatch.setattr(module, "_run", lambda *_: _raise(BuildError("undefined symbol")))
    with pytest.raises(BuildError, match="undefined symbol"):
        module._link(toolchain, [], code / "out", [])
    assert [path.name for path in cache_folder().iterdir()] == ["zig"]


def _raise(error: Exception) -> None:
    raise error


def test_boards_of_one_architecture_share_a_libc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When linking, zig builds its libc for each `-mcpu`, which takes a minute."""
    linked = []
    monkeypatch.setattr(module, "_run", lambda _, command, __: linked.append(command))
    for name in ("rpi4", "rpi5"):
        module.link_library(load_device(name), [tmp_path / "a.o"], tmp_path / "lib.so")
    assert linked[0] == linked[1]
    assert any("-mcpu=cortex_a76" in each for each in find_toolchain(load_device("rpi5")).command)


def test_a_phone_has_integer_products_and_no_scalable_vectors() -> None:
    """Snapdragons lack SVE, which zig's names of these cores include."""
    toolchain = find_toolchain(load_device("phone-arm64"))
    command = [*toolchain.command, "-E", "-dM", "-x", "c", "/dev/null"]
    done = subprocess.run(command, env=toolchain.environment, capture_output=True, check=True)
    macros = {line.split()[1] for line in done.stdout.decode().splitlines()}
    features = ("DOTPROD", "MATMUL_INT8", "BF16", "FP16_VECTOR_ARITHMETIC", "SVE")
    assert [f"__ARM_FEATURE_{name}" in macros for name in features] == [True] * 4 + [False]


def test_a_machine_without_a_home_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    toolchains._output_digest.cache_clear()
    assert find_toolchain(load_device("host")).version
