"""In how many bits a program keeps what it only stores: arithmetic is f32 all the same."""

from dataclasses import dataclass

from pockengine.errors import CompileError

WEIGHTS = ("f32", "bf16", "f16", "int8", "int4")
ACTIVATIONS = ("f32", "bf16", "f16")
STATES = ("f32", "bf16", "8bit")
TRAINED = ("f32", "bf16")


@dataclass(frozen=True)
class Storage:
    """`weights`: those of linear layers and embeddings that do not train, in one of WEIGHTS.

    `activations`: what the way back reads of the forward pass, in one of ACTIVATIONS; gradients are
    then those of rounded activations. `states`: those of the optimiser, in one of STATES; f16 is
    none, for squares of gradients below 2.4e-4 are 0 there. `trained`: weights of linear layers and
    embeddings that train, in one of TRAINED; f16 is none, for gradients' steps are below what it
    can say. CompileError for another name.
    """

    weights: str = "f32"
    activations: str = "f32"
    states: str = "f32"
    trained: str = "f32"

    def __post_init__(self) -> None:
        for what, name, known in (
            ("frozen weights", self.weights, WEIGHTS),
            ("activations", self.activations, ACTIVATIONS),
            ("optimiser states", self.states, STATES),
            ("weights that train", self.trained, TRAINED),
        ):
            if name not in known:
                raise CompileError(f"{what} are stored as {', '.join(known)}, not {name!r}")


EXACT = Storage()
"""All in f32."""
