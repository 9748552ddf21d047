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


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("torch-eager", "torch", "torch_worker", "PyTorch as it comes"),
        Engine("torch-eager-cl", "torch", "torch_worker", "PyTorch in channels-last format"),
        Engine(
            "torch-eager-cl-malloc",
            "torch",
            "torch_worker",
            "PyTorch in channels-last format, glibc told to keep freed memory",
            KEEP_MEMORY,
        ),
        Engine("tf-eager", "tensorflow", "tensorflow_worker", "TensorFlow (Keras) run op by op"),
        Engine(
            "tf-graph", "tensorflow", "tensorflow_worker", "TensorFlow (Keras) under tf.function"
        ),
    )
}


def find_engine(name: str) -> Engine:
    """Return an engine by its name; FarmError names those that exist."""
    engine = ENGINES.get(name)
    if engine is None:
        raise FarmError(f"unknown reference engine {name!r}; use one of {', '.join(ENGINES)}")
    return engine
