"""Name the packages of a wheel; everything else about it stands in pyproject.toml.

The repository's root is the package `pockengine`, so its folders are found here and given that
name, which pyproject.toml alone cannot say.
"""

from setuptools import find_packages, setup

FOLDERS = ["backends", "cli", "compiler", "devices", "farm", "finetune", "frontends", "models"]
PATTERNS = [pattern for name in FOLDERS for pattern in (name, f"{name}.*")]

setup(packages=["pockengine", *(f"pockengine.{name}" for name in find_packages(include=PATTERNS))])
