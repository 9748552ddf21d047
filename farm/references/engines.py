"""The engines of a bench as values: framework, mode, dtype, memory format, allocator.

A name such as `torch-eager-cl-malloc` is made from the value and looked up in a table; properties
are never parsed from a name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pockengine.errors import FarmError

# glibc keeps freed memory: without it a third of PyTorch's step is page faults on Linux. To be
# fair, a peer is also measured in its best configuration.
KEEP_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=8589934592"
    ":glibc.malloc.trim_threshold=17179869184"
    ":glibc.malloc.top_pad=268435456"
    ":glibc.malloc.hugetlb=1"
}
T = TypeVar("T")
SYSTEM, MALLOC = "system", "malloc"
ALLOCATORS: dict[str, Mapping[str, str]] = {SYSTEM: {}, MALLOC: KEEP_MEMORY}
"""Environment variables of each allocator."""


@dataclass(frozen=True)
class Framework:
    """A framework: its name in engines' names, its worker module, the packages that this imports.

    `bundled`: under Bazel the worker brings these packages.
    """

    name: str
    worker: str
    packages: tuple[str, ...]
    bundled: bool = True


TORCH = Framework("torch", "torch_worker", ("torch",))
TENSORFLOW = Framework("tf", "tensorflow_worker", ("tensorflow",))
FLEX = Framework("tf", "flex_worker", ("tensorflow",))
JAX = Framework("jax", "jax_worker", ("jax",))
ORT = Framework("ort", "ort_worker", ("onnxruntime.training",))
MNN = Framework("mnn", "mnn_worker", ("MNN",))
OWN = Framework("pockengine", "pockengine_worker", ())

LM_TORCH = Framework("torch", "lm_torch_worker", ("torch", "transformers"))
PEFT = Framework("peft", "lm_torch_worker", ("torch", "transformers", "peft"))
MLX = Framework("mlx", "lm_mlx_worker", ("mlx_lm",), bundled=False)
LLAMA_CPP = Framework("llama.cpp", "lm_llama_cpp_worker", ("llama_cpp",), bundled=False)
LM_OWN = Framework("pockengine", "lm_own_worker", ())


@dataclass(frozen=True)
class Engine:
    """An engine: a framework in one of its modes, with everything that changes its figures.

    `dtype` is that of products or of frozen weights, `states` that of the optimizer's states.
    """

    framework: Framework
    mode: str = ""
    dtype: str = "f32"
    states: str = "f32"
    channels_last: bool = False
    allocator: str = SYSTEM

    @property
    def name(self) -> str:
        """The name in records, tables and on the command line."""
        parts = (
            self.framework.name,
            self.mode,
            self.dtype if self.dtype != "f32" else "",
            self.states if self.states != "f32" else "",
            "cl" if self.channels_last else "",
            self.allocator if self.allocator != SYSTEM else "",
        )
        return "-".join(filter(None, parts))

    @property
    def compiled(self) -> bool:
        """Whether torch.compile compiles its step, which needs a C++ compiler and takes a
        minute."""
        return self.mode == "compile"

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that its allocator adds to the environment of its process."""
        return ALLOCATORS[self.allocator]


def _table(engines: Iterable[Engine]) -> dict[str, Engine]:
    return {engine.name: engine for engine in engines}


ENGINES = _table(
    (
        Engine(TORCH, "eager"),
        Engine(TORCH, "eager", allocator=MALLOC),
        Engine(TORCH, "eager", channels_last=True),
        Engine(TORCH, "eager", channels_last=True, allocator=MALLOC),
        Engine(TORCH, "compile", allocator=MALLOC),
        Engine(TORCH, "compile", channels_last=True, allocator=MALLOC),
        Engine(TENSORFLOW, "eager"),
        Engine(TENSORFLOW, "graph"),
        Engine(TENSORFLOW, "xla"),
        Engine(FLEX, "flex"),  # TensorFlow's step as a TFLite file
        Engine(JAX, "jit"),
        Engine(ORT, "training"),
        Engine(MNN, "train"),
    )
)
"""The engines of listed models, by name."""

STORAGES = ("f32", "bf16", "f16", "int8", "int4")
"""Types of frozen weights with which a decoder generates; the first by default."""

LM_ENGINES = _table(
    (
        Engine(LM_TORCH, "eager"),
        Engine(LM_TORCH, "eager", allocator=MALLOC),
        Engine(LM_TORCH, "compile", allocator=MALLOC),
        Engine(LM_TORCH, "eager", dtype="bf16", allocator=MALLOC),
        Engine(PEFT),
        Engine(PEFT, allocator=MALLOC),
        Engine(PEFT, dtype="bf16", allocator=MALLOC),
        Engine(MLX),
        Engine(MLX, dtype="bf16"),
        *(Engine(LM_OWN, dtype=storage) for storage in STORAGES),
        *(Engine(LLAMA_CPP, dtype=storage) for storage in STORAGES),
        Engine(LM_OWN, states="8bit"),
    )
)
"""The engines of language models, by name, ours among them."""


@dataclass(frozen=True)
class Runtime:
    """A runtime of our step: a backend, its extra, and its worker."""

    backend: str
    extra: str | None
    worker: str

    @property
    def engine(self) -> str:
        """The engine's name in records; of the C backend the project's."""
        return Engine(OWN, "" if self.backend == "c" else self.backend).name


RUNTIMES = {
    runtime.backend: runtime
    for runtime in (
        Runtime("c", None, "pockengine_worker"),
        Runtime("onnx", "onnxruntime", "pockengine_onnx_worker"),
        Runtime("tflite", "litert", "pockengine_tflite_worker"),
        Runtime("tvm", "tvm", "pockengine_tvm_worker"),
    )
}


def find_runtime(backend: str) -> Runtime:
    """Return the runtime of a backend; FarmError lists the available ones."""
    return _by_name("runtime", backend, RUNTIMES)


def find_engine(name: str) -> Engine:
    """Return an engine of listed models by name; FarmError lists the available ones."""
    return _by_name("reference engine", name, ENGINES)


def find_lm_engine(name: str) -> Engine:
    """Return an engine of language models by name; FarmError lists the available ones."""
    return _by_name("language model engine", name, LM_ENGINES)


def _by_name(kind: str, name: str, table: Mapping[str, T]) -> T:
    if name not in table:
        raise FarmError(f"unknown {kind} {name!r}; use one of {', '.join(table)}")
    return table[name]
