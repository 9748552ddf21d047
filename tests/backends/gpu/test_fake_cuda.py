"""The fake driver refuses what a real driver refuses; else tests with it would prove nothing."""

import ctypes
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from pockengine.backends.gpu.backend import GpuBackend
from pockengine.backends.gpu.nvrtc import build_cubin
from pockengine.backends.gpu.source import CUDA, source_of
from pockengine.devices import load_device
from pockengine.tests.backends.gpu.cases import TREES
from pockengine.tests.backends.gpu.fake_cuda import Fake, Machine
from pockengine.tests.compiler.every_op import graph_of

KERNEL = GpuBackend(load_device("h100")).gpu_kernel(graph_of(TREES[0]).nodes[0])
X, Y = 300 * 3 * 4, 3 * 4
"""Bytes of the kernel's operand, and of its result after it."""

INVALID, NO_CONTEXT, UNSUPPORTED, INVALIDATED = 1, 201, 900, 901
READER = """import ctypes, sys
driver = ctypes.CDLL(sys.argv[1])
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxPushCurrent_v2(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
print("allocated", flush=True)
ctypes.c_int.from_address(address.value).value
"""


class Driver:
    """The fake driver's functions by name, with a module, memory and a stream."""

    def __init__(self, fake: Fake) -> None:
        self._library, self.path = fake.library, fake.path
        fake.set(Machine())
        self("cuInit", 0)
        context = self.made("cuDevicePrimaryCtxRetain", 0)
        self("cuCtxPushCurrent_v2", context)
        cubin = build_cubin(source_of([KERNEL], CUDA), "sm_90").code
        module = self.made("cuModuleLoadData", cubin)
        self.launch = KERNEL.launches[0]
        self.function = self.made("cuModuleGetFunction", module, self.launch.function.encode())
        self.stream = self.made("cuStreamCreate", 1)
        self.memory = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(X + Y))

    def status(self, name: str, *arguments: object) -> int:
        status: int = getattr(self._library, name)(*arguments)
        return status

    def __call__(self, name: str, *arguments: object) -> None:
        assert self.status(name, *arguments) == 0, name

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self(name, ctypes.byref(handle), *arguments)
        return handle

    def made_last(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """The same for a function whose result is its last argument."""
        handle = ctypes.c_void_p()
        self(name, *arguments, ctypes.byref(handle))
        return handle

    def put(self, *, x: int | None = None, groups: int | None = None, items: int = 0) -> int:
        """Launch the kernel; return the status."""
        at = [self.memory.value if x is None else x, self.memory.value + X]
        values = (ctypes.c_uint64 * 2)(*at)
        pointers = (ctypes.c_void_p * 2)(
            *(ctypes.addressof(values) + 8 * place for place in range(2))
        )
        launch = self.launch
        sizes = (launch.groups if groups is None else groups, 1, 1, items or launch.items, 1, 1)
        return self.status("cuLaunchKernel", self.function, *sizes, 0, self.stream, pointers, None)

    def copy(self, host: np.ndarray, offset: int = 0) -> int:
        """Copy an array to an offset; return the status."""
        place, size = ctypes.c_void_p(host.ctypes.data), ctypes.c_size_t(host.nbytes)
        to = ctypes.c_uint64(self.memory.value + offset)
        return self.status("cuMemcpyHtoDAsync_v2", to, place, size, self.stream)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    fake = Fake(tmp_path_factory.mktemp("driver"))
    fake.know([KERNEL])
    return Driver(fake)


def test_a_captured_kernel_computes_once_it_is_launched_and_waited_for(driver: Driver) -> None:
    x = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    y = np.zeros(3, np.float32)
    assert driver.copy(x) == 0
    driver("cuStreamBeginCapture_v2", driver.stream, 1)
    assert driver.put() == 0
    graph = driver.made_last("cuStreamEndCapture", driver.stream)
    made = driver.made("cuGraphInstantiateWithFlags", graph, ctypes.c_ulonglong(0))
    driver("cuGraphLaunch", made, driver.stream)
    to, size = ctypes.c_void_p(y.ctypes.data), ctypes.c_size_t(Y)
    begin = ctypes.c_uint64(driver.memory.value + X)
    driver("cuMemcpyDtoHAsync_v2", to, begin, size, driver.stream)
    assert not y.any()  # without waiting
    driver("cuStreamSynchronize", driver.stream)
    np.testing.assert_allclose(y, x.sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    "put",
    [
        lambda driver: driver.put(x=np.zeros(1).ctypes.data),
        lambda driver: driver.put(x=driver.memory.value + X + Y),
        lambda driver: driver.put(groups=0),
        lambda driver: driver.put(items=2048),
    ],
    ids=["host", "behind", "none", "many"],
)
def test_a_launch_that_no_gpu_could_do_is_refused(
    put: Callable[[Driver], int], driver: Driver
) -> None:
    driver("cuStreamBeginCapture_v2", driver.stream, 1)
    assert put(driver) == INVALID
    driver.made_last("cuStreamEndCapture", driver.stream)


def test_a_launch_outside_of_a_capture_is_none_of_ours(driver: Driver) -> None:
    assert driver.put() == INVALID


def test_a_copy_within_a_capture_ends_it(driver: Driver) -> None:
    driver("cuStreamBeginCapture_v2", driver.stream, 1)
    assert driver.copy(np.zeros(4, np.float32)) == UNSUPPORTED
    graph = ctypes.c_void_p()
    status = driver.status("cuStreamEndCapture", driver.stream, ctypes.byref(graph))
    assert (status, graph.value) == (INVALIDATED, None)


def test_a_copy_past_the_end_is_refused(driver: Driver) -> None:
    assert driver.copy(np.zeros(2, np.float32), offset=X + Y - 4) == INVALID


def test_a_thread_without_the_context_is_refused(driver: Driver) -> None:
    context = driver.made("cuCtxPopCurrent_v2")
    assert driver.copy(np.zeros(1, np.float32)) == NO_CONTEXT
    driver("cuCtxPushCurrent_v2", context)


def test_the_host_cannot_read_the_devices_memory(driver: Driver) -> None:
    command = [sys.executable, "-c", READER, str(driver.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "allocated\n"
    assert done.returncode < 0
