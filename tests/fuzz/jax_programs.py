"""Programs in JAX: trace a statement, compute gradients, join many programs in a function.

bazel run //tests/fuzz:jax_programs -- --programs 100000 --seed 0
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from pockengine.frontends.jax import from_jax
from pockengine.tests.fuzz.compare import Imported
from pockengine.tests.fuzz.program import Leaf, Program
from pockengine.tests.fuzz.programs import command
from pockengine.tests.fuzz.statements import statements

jax.config.update("jax_disable_most_optimizations", True)  # compilation takes most of the time

NAMESPACE = {"jax": jax, "jnp": jnp, "lax": lax}
KINDS = {"float32": "f", "int32": "i", "bool": "b"}
Arrays = dict[str, np.ndarray]


class JaxLanguage:
    """JAX: statements are only traced for their shapes."""

    templates = statements("jax")
    sums = ("{}.sum()", "({0} * {0}).mean()", "{}.mean()")
    heading = "import jax\nimport numpy as np\nfrom jax import lax\nfrom jax import numpy as jnp"

    def start(self, leaves: Mapping[str, Leaf]) -> dict[str, Any]:
        """Return shapes and types."""
        return {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype)
            for name, array in _arrays(leaves, double=False).items()
        }

    def step(self, statement: str, values: dict[str, Any]) -> dict[str, Any]:
        """Trace a statement."""
        code = compile(statement, "<statement>", "exec")

        def run(values: dict[str, Any]) -> dict[str, Any]:
            scope = {**NAMESPACE, **values}
            exec(code, scope)
            return {
                name: value
                for name, value in scope.items()
                if isinstance(value, (jax.Array, np.ndarray))
            }

        found: dict[str, Any] = jax.eval_shape(run, values)
        return {**values, **{name: found[name] for name in found if name not in values}}

    def kind(self, value: Any) -> str:
        """Return the kind of an array."""
        return KINDS.get(str(value.dtype), "")

    def finite(self, value: Any) -> bool:
        """Return whether the array has a known type and is neither empty nor large."""
        return str(value.dtype) in KINDS and 0 < value.size <= 200

    def references(
        self, programs: Sequence[Program], *, double: bool = False
    ) -> list[list[np.ndarray] | None]:
        """Return each program's loss and gradients, or None if JAX does not run it."""
        with jax.enable_x64(double):
            return _references(programs, double)

    def graph(self, programs: Sequence[Program]) -> Imported:
        """Import one function of all programs."""
        params, inputs = _split(programs, double=False)
        function = _joined([program.function(NAMESPACE) for program in programs])
        graph = from_jax(function, (params, inputs))
        feed = {
            f"inputs.{place}.{name}": array
            for place, arrays in inputs.items()
            for name, array in arrays.items()
        }
        names = tuple(
            {name: f"p{place}.{name}" for name in program.trained}
            for place, program in enumerate(programs)
        )
        outputs = [name for name in graph.outputs if name != "loss"]
        return Imported(graph, feed, tuple(outputs), names)


def _references(programs: Sequence[Program], double: bool) -> list[list[np.ndarray] | None]:
    params, inputs = _split(programs, double)
    try:
        functions = [program.function(NAMESPACE, _text(program, double)) for program in programs]
        run = jax.value_and_grad(_joined(functions), has_aux=True)
        (_, losses), grads = jax.block_until_ready(jax.jit(run)(params, inputs))
    except Exception:  # JAX may raise anything, as may XLA, which lacks FFTs for some layouts
        if len(programs) == 1:
            return [None]
        middle = len(programs) // 2
        return [
            *_references(programs[:middle], double),
            *_references(programs[middle:], double),
        ]
    return [
        [np.asarray(loss), *(np.asarray(grads[f"p{place}"][name]) for name in program.trained)]
        for place, (program, loss) in enumerate(zip(programs, losses, strict=True))
    ]


def _text(program: Program, double: bool) -> str:
    return program.source().replace("jnp.float32", "jnp.float64") if double else program.source()


def _joined(functions: Sequence[Any]) -> Any:
    """Return a function of all programs' leaves, which returns all results and their sum."""

    def joined(params: dict[str, Arrays], inputs: dict[str, Arrays]) -> Any:
        losses = []
        for place, function in enumerate(functions):
            with jax.named_scope(f"p{place}"):
                losses.append(function(**params[f"p{place}"], **inputs[f"p{place}"]))
        return jnp.stack(losses).sum(), losses

    return joined


def _split(
    programs: Sequence[Program], double: bool
) -> tuple[dict[str, Arrays], dict[str, Arrays]]:
    """Return the trained leaves and the other leaves of each program."""
    params, inputs = {}, {}
    for place, program in enumerate(programs):
        arrays = _arrays(program.leaves, double)
        params[f"p{place}"] = {name: arrays[name] for name in program.trained}
        inputs[f"p{place}"] = {n: a for n, a in arrays.items() if n not in program.trained}
    return params, inputs


def _arrays(leaves: Mapping[str, Leaf], double: bool) -> Arrays:
    """Return the arrays in JAX's types, whose integers have 32 bits."""
    types = {"f": np.float64 if double else np.float32, "i": np.int32, "b": np.bool_}
    return {name: leaf.data.astype(types[leaf.data.dtype.kind]) for name, leaf in leaves.items()}


if __name__ == "__main__":
    command(JaxLanguage())()
