"""List the packages of a wheel; pyproject.toml has everything else.

The repository root is the package `pockengine`: pyproject.toml cannot express a prefix for found
packages, so this file adds it. The image decoder, stb_image.h, is not in the repository; the wheel
includes the copy installed on the build machine (`backends/native/decoder.py`), whose license is at
its end.
"""

from pathlib import Path
from runpy import run_path
from shutil import copyfile

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = ["backends", "cli", "compiler", "devices", "farm", "finetune", "frontends", "models"]
PATTERNS = [pattern for name in FOLDERS for pattern in (name, f"{name}.*")]


class BuildWithDecoder(build_py):
    """Copies stb_image.h to where the C backend looks first."""

    def run(self) -> None:
        """Build, and copy the header if this machine has it."""
        super().run()
        header = run_path("backends/native/decoder.py")["find_decoder"]()
        if header is None:
            self.warn("stb_image.h is missing (libstb-dev): the wheel will have no pictures")
        elif not self.editable_mode:
            target = Path(self.build_lib, "pockengine", "backends", "native", "stb", header.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            copyfile(header, target)


setup(
    cmdclass={"build_py": BuildWithDecoder},
    packages=["pockengine", *(f"pockengine.{name}" for name in find_packages(include=PATTERNS))],
)
