"""Which scheme a name means for a listed model; wrong names are refused before anything is read."""

from collections.abc import Sequence
from pathlib import Path

from pockengine.compiler.sparse.presets import check_preset
from pockengine.compiler.sparse.scheme import load_scheme
from pockengine.errors import FarmError
from pockengine.models.registry import ModelName, parse_model

SPARSE = "sparse"
SPARSE_SCHEME = Path(__file__).parent / "sparse.toml"
BY_HAND_FOR = ("mobilenet_v2",)
"""Families for which `sparse` is the file; for the others it is the preset."""


def scheme_for(scheme: str, model: str) -> str:
    """Return a preset or a file: `sparse` is the bench's own file where it is written for it."""
    by_hand = scheme == SPARSE and parse_model(model).family in BY_HAND_FOR
    return str(SPARSE_SCHEME) if by_hand else scheme


def name_of(scheme: str) -> str:
    """Return what records and tables call a scheme: a file by its name."""
    return Path(scheme).stem


def check_schemes(schemes: Sequence[str]) -> None:
    """Raise SchemeError for a file or name that is no scheme, FarmError for two of one name."""
    names = [name_of(scheme) for scheme in schemes]
    if len(set(names)) < len(names):
        raise FarmError(f"two schemes have one name: {', '.join(names)}; rename a file")
    for scheme in schemes:
        if scheme.endswith(".toml"):
            load_scheme(Path(scheme))
        else:
            check_preset(scheme)


def listed_model(model: str) -> ModelName:
    """Return a model of the registry; FarmError for one of the user's own."""
    if ":" in model or Path(model).exists():
        raise FarmError(
            f"the bench trains listed models (`pockengine models`), as its references do, and not "
            f"{model}; train your own by a job (`pockengine run`), or time it here by "
            "`pockengine profile`"
        )
    return parse_model(model)
