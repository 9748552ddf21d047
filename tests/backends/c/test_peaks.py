"""Kernels stay below the measured roofline, and single kernels can be timed alone."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pockengine.backends.c import alone, peaks
from pockengine.backends.c.alone import run_bench_program, time_alone
from pockengine.backends.c.peaks import measure_peaks
from pockengine.backends.peaks import ABOVE, Peaks, describe_peaks, share_text
from pockengine.backends.placement import kernel_nodes
from pockengine.devices.schema import load_device
from pockengine.errors import BuildError, RuntimeFailure
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph

ROOF = Peaks(2, gflops=100.0, bandwidths={1000: 200.0, 10_000: 50.0})


def test_a_share_that_cannot_be_is_not_printed() -> None:
    assert share_text(50.0, ROOF.gflops) == "50 %"
    assert share_text(104.0, ROOF.gflops) == "104 %"
    assert share_text(14208.0, ROOF.gflops) == ABOVE == "> 105 %"


def test_peaks_are_of_a_real_machine() -> None:
    found = measure_peaks(threads=1)
    assert 0.1 < found.gflops < 1000
    rates = list(found.bandwidths.values())
    assert rates == sorted(rates, reverse=True)
    assert 0.1 < found.gbytes == rates[-1]
    assert f"{found.gflops:.0f} GFLOP/s" in describe_peaks(found)


def test_peaks_are_measured_again_while_threads_share_a_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick, shared, apart = ([seconds] * 7 for seconds in (1e-4, 4e-4, 1.25e-4))
    runs = iter((quick, shared, apart, shared))
    monkeypatch.setattr(peaks, "build_bench", lambda *_: None)
    monkeypatch.setattr(peaks, "_best", lambda *_: next(runs))
    again = measure_peaks(2).gflops
    runs = iter((quick, quick))
    assert again == pytest.approx(0.8 * measure_peaks(2).gflops)


def test_the_roofline_is_the_slower_of_arithmetic_and_memory() -> None:
    assert ROOF.least_ns(multiply_adds=5000, nbytes=100) == 100.0
    assert ROOF.least_ns(multiply_adds=1, nbytes=1000) == 5.0
    assert ROOF.least_ns(multiply_adds=1, nbytes=1001) == pytest.approx(1001 / 50)
    assert ROOF.least_ns(multiply_adds=1, nbytes=10_001) == pytest.approx(10_001 / 50)


def test_each_kernel_is_timed_alone_once() -> None:
    program, backend = compile_for(convolutional_graph(), load_device("host"))
    nodes = kernel_nodes(program.entries["train"])
    times = time_alone(nodes, backend, threads=1)
    assert set(times) == {backend.kernel(node).symbol for node in nodes}
    assert all(0 < best <= median for median, best in times.values())


def test_a_program_that_does_not_compile_or_run_says_so() -> None:
    with pytest.raises(BuildError, match="does not compile"):
        run_bench_program("int main(void) { return nothing; }", 1)
    with pytest.raises(RuntimeFailure, match="status 3"):
        run_bench_program("int main(void) { return 3; }", 1)


def test_cpus_of_an_architecture_share_a_libc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zig builds a libc for each CPU that it links for, in 75 s."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(alone, "subprocess", SimpleNamespace(run=run))
    alone.build_bench("", load_device("rpi5"), tmp_path / "bench")
    cpus = [[word for word in command if word.startswith("-mcpu")] for command in commands]
    assert cpus == [*[["-mcpu=cortex_a76"]] * 4, ["-mcpu=baseline"]]
