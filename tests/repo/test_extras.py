"""The extras' packages are listed in two places: pyproject.toml, and the advice of `extras.py`."""

import re
import tomllib

from pockengine.extras import EXTRAS, TASKS, pip_command
from pockengine.tests.repo.tree import ROOT

DISTRIBUTIONS = {
    "PIL": "pillow",
    "ai_edge_litert": "ai-edge-litert",
    "mlflow": "mlflow-skinny",
    "onnxruntime_qnn": "onnxruntime-qnn",
    "sklearn": "scikit-learn",
    "tensorflow": "tensorflow-cpu",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
}
"""Modules whose distribution has a different name."""


def test_each_extra_installs_its_modules() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {re.split(r"[\[<>=]", line)[0] for line in lines}
        for extra, lines in project["optional-dependencies"].items()
        if extra != "dev"
    }

    ours = {
        extra: {DISTRIBUTIONS.get(module, module) for module in modules}
        for extra, modules in EXTRAS.items()
    }
    assert ours == declared
    assert TASKS.keys() == EXTRAS.keys()


def test_the_page_lists_every_extra() -> None:
    table = re.findall(r"^\| (`[^|]+) \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`([\w]+)`", " ".join(table))) == sorted(EXTRAS)


def test_pytorch_is_its_cpu_build() -> None:
    assert "whl/cpu" in pip_command("models")
    assert "whl/cpu" not in pip_command("onnx", "farm")
