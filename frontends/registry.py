"""Find the frontend of a model without importing any framework.

A frontend is loaded by module name for a model of its framework; without such a model it is neither
imported nor required. Other packages offer a frontend by an entry point of the group
`pockengine.frontends` whose value is a `FrontendEntry`; code that runs already may `register` one.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pockengine.errors import ImportModelError
from pockengine.frontends.choices import opened
from pockengine.frontends.frontend import Frontend, Source
from pockengine.frontends.model_files import OpenedModel

GROUP = "pockengine.frontends"


@dataclass(frozen=True)
class FrontendEntry:
    """A frontend's module, and the hints that it may support a model.

    `module` has a `FRONTEND`, a `Frontend`. `packages` are the framework's: a model of it has
    imported one. `endings` are of its files.
    """

    framework: str
    module: str
    packages: tuple[str, ...]
    endings: tuple[str, ...] = ()
    folders: bool = False

    def may_take(self, model: Any) -> bool:
        """Whether the frontend may support the model."""
        model = opened(model).model
        if isinstance(model, (str, Path)):
            return self.has_file(Path(model))
        return any(sys.modules.get(package) is not None for package in self.packages)

    def has_file(self, path: Path) -> bool:
        """Whether a path is one of the framework's files, or of its folders."""
        return path.suffix in self.endings or (self.folders and path.is_dir())


BUILT_IN: Sequence[FrontendEntry] = (
    FrontendEntry("PyTorch", "pockengine.frontends.torch.frontend", ("torch",)),
    FrontendEntry("ONNX", "pockengine.frontends.onnx.frontend", ("onnx",), (".onnx",)),
    FrontendEntry(
        "TensorFlow",
        "pockengine.frontends.tensorflow.frontend",
        ("keras", "tensorflow", "tf_keras"),
        (".h5", ".hdf5", ".keras", ".tflite"),
        folders=True,  # a SavedModel
    ),
)
JAX = FrontendEntry("JAX", "pockengine.frontends.jax.frontend", ("jax",))

_REGISTERED: dict[str, FrontendEntry] = {}


def register(entry: FrontendEntry) -> None:
    """Offer a frontend for a framework; ImportModelError if the name is taken."""
    known = {each.framework: each for each in known_frontends()}
    if known.get(entry.framework, entry) != entry:
        raise ImportModelError(
            f"the frontend of {entry.framework} is {known[entry.framework].module}; register "
            f"{entry.module} by another name"
        )
    _REGISTERED[entry.framework] = entry


def known_frontends() -> list[FrontendEntry]:
    """Return all frontends in query order; JAX's, which accepts any function, is last."""
    return [*BUILT_IN, *_REGISTERED.values(), *_installed(), JAX]


@cache
def _installed() -> tuple[FrontendEntry, ...]:
    """Load the entry points of other packages, which takes milliseconds."""
    found = []
    for point in entry_points(group=GROUP):
        entry = point.load()
        if not isinstance(entry, FrontendEntry):
            raise ImportModelError(f"entry point {point.name} of group {GROUP} is no FrontendEntry")
        found.append(entry)
    return tuple(found)


def load_frontend(framework: str) -> Any:
    """Import a framework's frontend; ImportModelError if it is not installed."""
    entry = next(entry for entry in known_frontends() if entry.framework == framework)
    package = entry.module.rpartition(".")[0]
    try:
        return import_module(entry.module)
    except ModuleNotFoundError as error:
        if error.name not in (package, entry.module):
            raise
        raise ImportModelError(
            f"the frontend of {framework} ({package}) is not in this installation of PockEngine; "
            "install it whole"
        ) from error


def find_source(model: Any, example_inputs: Any) -> Source:
    """Recognize a model; ImportModelError lists supported ones."""
    for entry in known_frontends():
        if entry.may_take(model):
            frontend: Frontend = load_frontend(entry.framework).FRONTEND
            if frontend.recognizes(model):
                return Source(frontend, frontend.opens(model), example_inputs)
    if isinstance(model, (str, Path)):
        endings = ", ".join(ending for entry in known_frontends() for ending in entry.endings)
        raise ImportModelError(
            f"{model} is no file of a model: {endings}, or the folder of a SavedModel"
        )
    known = ", ".join(entry.framework for entry in known_frontends())
    hint = "; a plain function is taken for JAX's once jax is imported" if callable(model) else ""
    raise ImportModelError(
        f"an object of type {type(model).__name__} is no model that pockengine.compile knows "
        f"({known}){hint}"
    )


def step_source(step: Callable[..., Any], inputs: Any, carried: int) -> Source:
    """Take a whole training step of JAX, whose first arguments stay in the artifact."""
    return Source(load_frontend("JAX").StepFrontend(carried), step, inputs)


def open_file(path: Path) -> OpenedModel:
    """Open a file of ONNX, Keras or TFLite, or a SavedModel's folder.

    ImportModelError for files that are damaged, or hold code.
    """
    framework = next((e.framework for e in known_frontends() if e.has_file(path)), "TensorFlow")
    frontend: Frontend = load_frontend(framework).FRONTEND
    return frontend.open_file(path)
