"""The reference engines: which worker holds each, and in which environment it runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pockengine.errors import FarmError

# glibc told to keep freed memory: without it a third of PyTorch's step is page faults on Linux. A
# peer at its best is the peer, so it is measured this way too.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=8589934592"
    ":glibc.malloc.trim_threshold=17179869184"
    ":glibc.malloc.top_pad=268435456"
    ":glibc.malloc.hugetlb=1"
}


@dataclass(frozen=True)
class Engine:
    """A reference engine: its name in records, its framework and worker module, what it is."""

    name: str
    framework: str
    worker: str
    meaning: str
    environment: Mapping[str, str] = field(default_factory=dict)


TORCH, TENSORFLOW = ("torch", "torch_worker"), ("tensorflow", "tensorflow_worker")
KEPT = ", glibc told to keep freed memory"
ENGINES = {
    engine.name: engine
    for engine in (
        Engine("torch-eager", *TORCH, "PyTorch as it comes"),
        Engine("torch-eager-malloc", *TORCH, f"PyTorch{KEPT}", KEEP_MEMORY),
        Engine("torch-eager-cl", *TORCH, "PyTorch in channels-last format"),
        Engine(
            "torch-eager-cl-malloc", *TORCH, f"PyTorch in channels-last format{KEPT}", KEEP_MEMORY
        ),
        Engine("torch-compile-malloc", *TORCH, f"torch.compile{KEPT}", KEEP_MEMORY),
        Engine(
            "torch-compile-cl-malloc",
            *TORCH,
            f"torch.compile in channels-last format{KEPT}",
            KEEP_MEMORY,
        ),
        Engine("tf-eager", *TENSORFLOW, "TensorFlow (Keras) run op by op"),
        Engine("tf-graph", *TENSORFLOW, "TensorFlow (Keras) under tf.function"),
        Engine("tf-xla", *TENSORFLOW, "TensorFlow (Keras) compiled by XLA"),
        Engine(
            "tf-flex", "tensorflow", "flex_worker", "TensorFlow's step as a TFLite file, by Flex"
        ),
        Engine("jax-jit", "jax", "jax_worker", "JAX, the whole step jitted"),
        Engine("ort-training", "onnxruntime", "ort_worker", "ONNX Runtime's on-device training"),
        Engine("mnn-train", "MNN", "mnn_worker", "MNN's training in Python"),
    )
}


@dataclass(frozen=True)
class Runtime:
    """What computes a step of ours: a backend, the extra that brings it, and its worker."""

    engine: str
    backend: str
    extra: str | None
    worker: str


RUNTIMES = {
    runtime.backend: runtime
    for runtime in (
        Runtime("pockengine", "c", None, "pockengine_worker"),
        Runtime("pockengine-onnx", "onnx", "onnxruntime", "pockengine_onnx_worker"),
        Runtime("pockengine-tflite", "tflite", "litert", "pockengine_tflite_worker"),
        Runtime("pockengine-tvm", "tvm", "tvm", "pockengine_tvm_worker"),
    )
}


def find_runtime(backend: str) -> Runtime:
    """Return what computes by a backend; FarmError names those that exist."""
    runtime = RUNTIMES.get(backend)
    if runtime is None:
        raise FarmError(f"unknown runtime {backend!r}; use one of {', '.join(RUNTIMES)}")
    return runtime


def find_engine(name: str) -> Engine:
    """Return an engine by its name; FarmError names those that exist."""
    engine = ENGINES.get(name)
    if engine is None:
        raise FarmError(f"unknown reference engine {name!r}; use one of {', '.join(ENGINES)}")
    return engine
