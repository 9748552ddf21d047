"""Kernels under the thread sanitizer: items access the same memory only with a barrier between.

Each item of a launch is a thread. Groups are unordered; items of a group are ordered by its
barriers.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir import F32, I64, TensorType
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import EMBEDDINGS, NN, attention_cases, floats
from pockengine.tests.backends.gpu.sanitized import (
    ONE_DRAW,
    RACES,
    Sanitized,
    planted,
    run_step,
    watch_case,
    watch_every_op,
)
from pockengine.tests.backends.trainings import TRAININGS
from pockengine.tests.compiler.op_case import OpCase

BACKEND = GpuBackend(load_device("host"))
TENSOR_CORES = GpuBackend(load_device("host"), bf16=True)
RACE = "data race"

INDICES = TensorType(I64, (9,))
KERNELS = {
    "product": (BACKEND, OpCase("matmul", (floats(17, 40), floats(40, 33)), NN)),
    "tensor-cores": (TENSOR_CORES, OpCase("matmul", (floats(33, 70), floats(70, 40)), NN)),
    "tree": (BACKEND, OpCase("reduce_sum", (floats(40, 33),), {"axes": (0,)})),
    "moments": (BACKEND, OpCase("moments", (floats(70, 3),), NN)),
    "norm": (BACKEND, OpCase("layer_norm", (floats(3, 70),), {"eps": 1e-5})),
    "norm-dx": (BACKEND, OpCase("layer_norm_dx", (floats(3, 70),) * 2 + (floats(3, 1),), NN)),
    "embedding": (BACKEND, EMBEDDINGS[-1]),
    "loss": (BACKEND, OpCase("cross_entropy", (floats(9, 70), INDICES), NN)),
    "loss-dx": (
        BACKEND,
        OpCase("cross_entropy_dx", (floats(9, 70), INDICES, TensorType(F32, ())), NN),
    ),
    **{case.op: (BACKEND, case) for case in attention_cases(2, 1, 66, 20, causal=True)},
}

MEET = "PE_SHARED(float, s, 64); s[pe_item()] = x[pe_item()]; {barrier} y[{at}] = s[63 - {at}];"
EARLY = """
    PE_SHARED(float, s, 1);
    for (int turn = 0; turn < 4; turn++) {{
        if (pe_item() == 0) {{ s[0] = 1.0f; }}
        pe_barrier();
        y[pe_group() * 64 + pe_item()] += s[0];
        {barrier}
    }}
"""
WARP = """
    PE_SHARED(float, s, 64);
    const pe_u32 none[4] = {{0, 0, 0, 0}};
    float sums[4] = {{0.0f, 0.0f, 0.0f, 0.0f}};
    s[pe_item()] = x[pe_item()];
    pe_mma_bf16(sums, none, none);
    {barrier}
    y[pe_group() * 64 + pe_item()] = s[pe_item() ^ 1] + sums[0];
"""
OWN = "pe_group() * 64 + pe_item()"
BARRIER = "pe_barrier();"
READ = f"y[{OWN}] = 1.0f; {BARRIER} if (y[{{at}}] > 2.0f) {{{{ y[{OWN}] = 2.0f; }}}}"
FAULTS = {
    "no-barrier": MEET.format(barrier="", at="pe_item()"),
    "early-at-the-next": EARLY.format(barrier=""),
    "warp-is-no-barrier": WARP.format(barrier=""),
    "two-items": "y[pe_group() * 64 + pe_item() / 2] = 1.0f;",
    "two-groups": "y[pe_item()] = 1.0f;",
    "two-groups-with-barriers": MEET.format(barrier=BARRIER, at="pe_item()"),
    "group-reads-another": READ.format(at=f"127 - ({OWN})"),
}
SOUND = [
    MEET.format(barrier=BARRIER, at="pe_item()").replace("y[", "y[pe_group() * 64 + "),
    EARLY.format(barrier=BARRIER),
    WARP.format(barrier=BARRIER),
    f"y[{OWN}] = 1.0f;",
    READ.format(at=f"({OWN}) ^ 1"),
]


@pytest.mark.parametrize("body", FAULTS.values(), ids=FAULTS)
def test_a_race_is_found(body: str, tmp_path: Path) -> None:
    groups = 1 if body == FAULTS["no-barrier"] else 2
    done = Sanitized([planted(body, groups, 128)], RACES, tmp_path).run()
    assert done.returncode != 0
    assert RACE in done.stderr


def test_what_barriers_order_is_no_race(tmp_path: Path) -> None:
    Sanitized([planted(body, 2, 128) for body in SOUND], RACES, tmp_path).barriers()


@ONE_DRAW
@given(data=st.data())
def test_no_op_races(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    cases = watch_every_op(data.draw, BACKEND)
    Sanitized(cases, RACES, tmp_path_factory.mktemp("ops")).barriers()


@pytest.mark.parametrize("name", ["llama", "mobile-sparse"])
def test_no_step_races_in_the_memory_that_was_planned(name: str, tmp_path: Path) -> None:
    graph, options = TRAININGS[name]
    program = compile_program(graph, Training(**options), target=BACKEND.target())
    done = run_step(program, BACKEND, RACES, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(name="kernels", scope="module")
def program_of_kernels(tmp_path_factory: pytest.TempPathFactory) -> Sanitized:
    cases = [watch_case(case, backend) for backend, case in KERNELS.values()]
    return Sanitized(cases, RACES, tmp_path_factory.mktemp("kernels"))


@pytest.fixture(name="barriers", scope="module")
def barriers_of_kernels(kernels: Sanitized) -> list[tuple[int, int]]:
    return kernels.barriers()


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_races_without_any_of_its_barriers_alone(
    name: str, kernels: Sanitized, barriers: list[tuple[int, int]]
) -> None:
    number = list(KERNELS).index(name)
    own = [barrier for case, barrier in barriers if case == number]
    assert own
    for barrier in own:
        done = kernels.run(left_out=barrier, only=number)
        assert done.returncode != 0, barrier
        assert RACE in done.stderr, barrier
