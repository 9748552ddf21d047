"""The headers found for a C file are those that a compiler reads."""

import re
import subprocess
from pathlib import Path

from pockengine.backends.native.includes import Includes
from pockengine.backends.native.program import KERNEL_HEADER
from pockengine.backends.native.runtime_files import RUNTIME, runtime_folders, runtime_sources

TEMPLATES = sorted((RUNTIME / "kernels").glob("*.inc.h"))
DEFINITION = re.compile(r"^PE_INLINE [^;=]*?\b(pe_\w+)\(", re.MULTILINE)
CALL = re.compile(r"\b(pe_\w+)\(")


def test_all_that_gcc_reads_is_found() -> None:
    sources = runtime_sources()
    assert len(sources) > 20
    ours = Includes(runtime_folders())
    includes = [f"-I{folder}" for folder in runtime_folders()]
    for source in sources:
        command = ["gcc", "-MM", "-MG", *includes, str(source)]
        rule = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        read = {Path(word).resolve() for word in rule.replace("\\\n", " ").split()[2:]}
        own = {path for path in read if path.is_relative_to(RUNTIME.resolve())}
        assert own <= set(ours.headers(source)), source.name


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text('#include "b.h"\n')
    (tmp_path / "b.h").write_text('#include "a.h"\n#include "missing.h"\n')
    source = tmp_path / "main.c"
    source.write_text("#include <a.h>\n")
    assert Includes([tmp_path]).headers(source) == [tmp_path / "a.h", tmp_path / "b.h"]


def test_templates_include_what_they_call(tmp_path: Path) -> None:
    """A file of kernels builds whichever kernels share it.

    Which ones do depends on a program's kernels and the machine's cores, so a template that
    relies on another's include builds in one program and not in the next.
    """
    includes = Includes(runtime_folders())
    header = tmp_path / "header.c"
    header.write_text(KERNEL_HEADER)
    common = set(includes.headers(header))
    defined: dict[str, set[Path]] = {}
    for path in [*RUNTIME.glob("simd/*.h"), *RUNTIME.glob("core/*.h")]:
        for name in DEFINITION.findall(path.read_text()):
            defined.setdefault(name, set()).add(path.resolve())
    assert defined["pe_transpose"] == {(RUNTIME / "simd/pe_transpose.h").resolve()}

    parts = {path for each in TEMPLATES for path in includes.headers(each)}
    for template in {path.resolve() for path in TEMPLATES} - parts:
        reached = {template, *includes.headers(template)}
        called = {name for path in reached for name in CALL.findall(path.read_text())}
        missing = {name for name in called & set(defined) if not defined[name] & (reached | common)}
        assert not missing, f"{template.name} does not include the headers of {missing}"
