"""Optional packages: which extra installs each, checked before any work starts."""

import json
import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

from pockengine.errors import MissingPackage

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "tensorflow": ("keras", "tensorflow"),
    "jax": ("flax", "jax"),
    "onnx": ("onnx",),
    "onnxruntime": ("onnx", "onnxruntime"),
    "qnn": ("onnx", "onnxruntime", "onnxruntime_qnn"),
    "tflite": ("flatbuffers", "tflite"),
    "litert": ("ai_edge_litert", "flatbuffers", "tflite"),
    "tvm": ("onnx", "tvm", "tvm_ffi"),
    "models": ("torch", "transformers"),
    "language": ("jinja2", "torch", "transformers"),
    "gguf": ("gguf",),
    "federated": ("flwr",),
    "farm": ("paramiko", "PIL", "sklearn", "sqlalchemy"),
    "pictures": ("PIL",),
    "pool": ("labgrid",),
    "postgres": ("psycopg",),
    "report": ("jinja2", "matplotlib"),
    "tensorboard": ("tensorboard",),
    "mlflow": ("mlflow",),
    "trackio": ("trackio",),
    "search": ("distributed", "matplotlib", "optuna"),
    "solver": ("scipy",),
}
"""The modules of each extra of pyproject.toml."""

TASKS: Mapping[str, str] = {
    "torch": "models of PyTorch",
    "tensorflow": "models of TensorFlow, Keras, TFLite",
    "jax": "models of JAX and Flax",
    "onnx": "models of ONNX, the backend onnx",
    "onnxruntime": "sessions of the backend onnx",
    "qnn": "sessions of the backend qnn",
    "tflite": "the backend tflite",
    "litert": "sessions of the backend tflite",
    "tvm": "the backend tvm",
    "models": "models of Hugging Face, listed transformers",
    "language": "fine-tuning of language models",
    "gguf": "GGUF files in K-quants and other small types",
    "federated": "the example with Flower",
    "farm": "boards, jobs, records",
    "pictures": "folders of pictures as rows",
    "pool": "boards of a labgrid coordinator",
    "postgres": "records in PostgreSQL",
    "report": "pages and pictures of figures",
    "tensorboard": "a training's figures in TensorBoard",
    "mlflow": "a training's figures in MLflow",
    "trackio": "a training's figures in Trackio",
    "search": "schemes by search, a Dask cluster",
    "solver": "the least recomputation within a memory budget",
}
"""The purpose of each extra."""

_CPU_BUILD = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""PyTorch's wheels on PyPI include gigabytes of CUDA."""


def missing(extra: str) -> list[str]:
    """Return an extra's modules that are not installed, without importing any."""
    return [module for module in EXTRAS[extra] if find_spec(module) is None]


def pip_command(*extras: str) -> str:
    """Return the command that installs extras, from the clone that this package runs or was
    installed from.

    The package is not on PyPI: the bare name would install whatever is registered there.
    """
    torch = any("torch" in EXTRAS[extra] for extra in extras)
    requirement = shlex.quote(f"{_clone()}[{','.join(extras)}]")
    return f"pip install {requirement}" + (f" {_CPU_BUILD}" if torch else "")


def _clone() -> Path:
    """Return the clone's folder; `.` if it is the working directory or unknown."""
    here = Path(__file__).resolve().parent
    places = [here, *_installed_from()]
    clone = next((place for place in places if (place / "pyproject.toml").is_file()), Path())
    return Path() if clone.resolve() == Path.cwd() else clone


def _installed_from() -> list[Path]:
    """Return the local folder that pip recorded for this installation (PEP 610)."""
    try:
        record = distribution("pockengine").read_text("direct_url.json")
    except PackageNotFoundError:
        return []
    address = urlparse(json.loads(record)["url"]) if record else urlparse("")
    return [Path(unquote(address.path))] if address.scheme == "file" else []


def need(what: str, *extras: str) -> None:
    """Raise MissingPackage, with the command that installs it, unless all modules are installed."""
    lacking = [extra for extra in extras if missing(extra)]
    if lacking:
        modules = dict.fromkeys(module for extra in lacking for module in missing(extra))
        raise MissingPackage(
            f"{what} needs {', '.join(modules)}, not installed here: {pip_command(*lacking)}"
        )
