"""Profiles name every kernel of a step with its time and its work."""

from dataclasses import replace

import numpy as np

from pockengine.backends.native.profile import profile_step
from pockengine.backends.placement import kernel_nodes
from pockengine.devices.schema import load_device
from pockengine.tests.backends.c.programs import compile_for, convolutional_graph


def test_every_kernel_of_the_step_is_timed() -> None:
    device = load_device("host")
    device = replace(device, processor=replace(device.cpu, cores=2))
    program, backend = compile_for(convolutional_graph(), device)
    inputs = {"x": np.ones((4, 12, 12, 3), np.float32), "labels": np.zeros(4, np.int64)}
    times = profile_step(program, backend, inputs, threads=2, steps=3)
    assert len(times) == len(kernel_nodes(program.entries["train"]))
    assert all(0 < time.least_ns <= time.median_ns <= time.most_ns for time in times)
    assert all(time.samples == 3 and time.nbytes > 0 for time in times)
    first = times[0]
    assert first.op == "conv2d"
    assert first.multiply_adds == 4 * 12 * 12 * 8 * 27
    assert "first.weight f32[3,3,3,8]" in first.what
