"""An int8 net trains in C as in the oracle: the same integers at every step."""

from pathlib import Path

import numpy as np
import pytest

from pockengine.backends.artifact import write_artifact
from pockengine.backends.registry import backend_for, open_session
from pockengine.backends.stored import decoded
from pockengine.compiler.compile import compile_program
from pockengine.compiler.integers import Integers
from pockengine.compiler.ir import DType
from pockengine.compiler.ir.evaluate import run
from pockengine.compiler.optim import Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.quantize.calibrate import quantized
from pockengine.compiler.sparse.choice import FULL, ParamChoice
from pockengine.compiler.sparse.scheme import Scheme
from pockengine.devices import find_device
from pockengine.tests.compiler.small_nets import batches, residual_net

SAMPLES = batches(4)
PART = Scheme(
    "part",
    (
        ("b.0.weight", ParamChoice("share", share=0.5, by="magnitude")),
        ("c.0.weight", ParamChoice("share", share=0.25)),
        ("fc.*", FULL),
    ),
)


@pytest.mark.parametrize(
    ("integers", "scheme"),
    [(Integers(), "full"), (Integers("f32"), PART), (Integers(qas=False), PART)],
)
def test_c_trains_the_oracles_integers(
    tmp_path: Path, integers: Integers, scheme: Scheme | str
) -> None:
    graph, _ = quantized(residual_net(), SAMPLES)
    backend = backend_for(find_device("host"))
    training = Training(scheme, Sgd(momentum=0.9), integers=integers)
    program = compile_program(graph, training, target=backend.target(), check=True)
    step = program.entries["train"].graph
    params = {name: param.data for name, param in step.params.items()}
    artifact = write_artifact(program, backend, tmp_path / "artifact")
    with open_session(artifact, threads=2) as session:
        for batch in SAMPLES:
            found = session.train_step({k: batch[k] for k in ("x", "target")}, lr=0.1)["loss"]
            np.testing.assert_allclose(found, run(step, batch, params)["loss"], rtol=1e-5)
        trained = session.params()
        real = decoded(artifact.params, trained)
    for name, expected in params.items():
        apart = np.abs(trained[name].astype(np.float64) - expected)
        limit = 1 if name.startswith("optimizer.remainder") else 1e-5
        assert apart.max() <= limit, name
    assert trained["c.0.weight"].dtype == DType.I8.numpy
    quantization = program.params["c.0.weight"].quantization
    assert quantization is not None
    np.testing.assert_array_equal(real["c.0.weight"], quantization.real(trained["c.0.weight"]))
