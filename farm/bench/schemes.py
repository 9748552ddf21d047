"""The bench's names of suites, models and schemes; wrong ones are refused at once."""

from collections.abc import Sequence
from pathlib import Path

from pockengine.compiler.sparse.presets import PRESETS, check_preset
from pockengine.compiler.sparse.scheme import load_scheme
from pockengine.errors import FarmError
from pockengine.models.decoders import SIZES, check_decoder
from pockengine.models.registry import FAMILIES, ModelName, parse_model

PEERS, RUNTIMES, LLM, GENERATION, GPU, PAPER = SUITES = (
    *("peers", "runtimes", "llm", "generation", "gpu", "paper"),
)
MODEL = "mobilenet_v2-0.35-96"
SPARSE = "sparse"
SCHEMES = ("full", "bias-only", "last-2-blocks", SPARSE)
SPARSE_SCHEME = Path(__file__).parent / "sparse.toml"
BY_HAND_FOR = ("mobilenet_v2",)
"""Families for which `sparse` is the file; for the others it is the preset."""


NAMES = {
    "Models": ", ".join(known.form(name) for name, known in FAMILIES.items()),
    "Models of llm, generation": f"{', '.join(SIZES)}, or the folder of a decoder of transformers",
    "Presets": ", ".join(PRESETS),
}
"""Names that a user may give, by kind."""


def scheme_for(scheme: str, model: str) -> str:
    """Return a preset or a file: `sparse` is the bench's own file where it is written for it."""
    by_hand = scheme == SPARSE and parse_model(model).family in BY_HAND_FOR
    return str(SPARSE_SCHEME) if by_hand else scheme


def name_of(scheme: str) -> str:
    """Return a scheme's name in records and tables: a file's name, or the preset."""
    return Path(scheme).stem


def check_schemes(schemes: Sequence[str]) -> None:
    """Raise SchemeError for a file or name that is not a scheme, FarmError for two of one name."""
    names = [name_of(scheme) for scheme in schemes]
    if len(set(names)) < len(names):
        raise FarmError(f"two schemes have one name: {', '.join(names)}; rename a file")
    for scheme in schemes:
        if scheme.endswith(".toml"):
            load_scheme(Path(scheme))
        else:
            check_preset(scheme)


def check_decoders(models: Sequence[str]) -> None:
    """Raise ImportModelError for a name or folder that is not a decoder's."""
    for model in models:
        check_decoder(model)


def listed_model(model: str) -> ModelName:
    """Return a model of the registry; FarmError for one of the user's own."""
    if ":" in model or Path(model).exists():
        raise FarmError(
            f"the bench trains listed models (`pockengine models`), as its references do, and not "
            f"{model}; train your own by a job (`pockengine run`), or time it here by "
            "`pockengine profile`"
        )
    return parse_model(model)
