"""The headers found for a C file are those that a compiler reads."""

import subprocess
from pathlib import Path

from pockengine.backends.native.includes import Includes
from pockengine.backends.native.runtime_files import RUNTIME, runtime_folders, runtime_sources


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
