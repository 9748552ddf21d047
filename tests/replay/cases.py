"""The programs whose generated text is pinned: a model, its training, and a device.

Each covers a part of the compiler that no other does. Nothing depends on the test's machine:
devices are files or values, weights come from seeded generators.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pockengine.backends.c.backend import CBackend
from pockengine.compiler.compile import compile_entries, compile_program
from pockengine.compiler.optim import Adafactor, Adam, AdamW, Sgd
from pockengine.compiler.options import Training
from pockengine.compiler.passes.backward.differentiate import Clip
from pockengine.compiler.program import Program
from pockengine.compiler.sizes import Range
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FULL, ParamChoice
from pockengine.compiler.target import Target
from pockengine.compiler.variants import compile_variants
from pockengine.devices import load_device
from pockengine.devices.schema import Cpu, Device, ToolchainSpec
from pockengine.tests.compiler.random_nets import draw_net
from pockengine.tests.compiler.random_trainings import draw_training
from pockengine.tests.compiler.transformers import bert_net, llama_net
from pockengine.tests.replay.nets import mobile_net, other_ops, plain_net, residual_net

Compile = Callable[[Target], Program]


@dataclass(frozen=True)
class Case:
    """One program: `compile` compiles it for the target of the device's backend."""

    name: str
    compile: Compile
    device: Device
    bf16: bool = False

    def backend(self) -> CBackend:
        """The backend that generates it."""
        return CBackend(self.device, bf16=self.bf16)


def _server(isa: str, cpu: str, *, bf16: bool = False) -> Device:
    """An x86 machine with eight cores."""
    sizes = {"line_bytes": 64, "l1d_bytes": 49152, "l2_bytes": 2097152, "l3_bytes": 33554432}
    core = Cpu(arch="x86_64", model=cpu, cores=8, isa=isa, bf16=bf16, mhz=2000, **sizes)
    return Device(isa, "a server", 1 << 35, core, ToolchainSpec("x86_64-linux-gnu", cpu))


AVX512 = _server("avx512", "sapphirerapids", bf16=True)
AVX2 = _server("avx2", "haswell")

SPARSE = Scheme(
    "channels",
    (
        ("*.bias", FULL),
        ("features.4.conv.0.0.weight", ParamChoice("share", share=0.25)),
        ("features.5.conv.0.0.weight", ParamChoice("channels", channels=(1, 4, 5))),
        ("features.5.conv.2.weight", ParamChoice("range", channels=(8, 24))),
        ("classifier.1.weight", FULL),
    ),
)


def _training(net: Callable[[], object], training: Training) -> Compile:
    return lambda target: compile_program(net(), training, target=target)


def _ranged(target: Target) -> Program:
    """Variants for batches of one to four."""
    sizes = Range("batch", 1, 4, {"x": 0, "target": 0}, (2, 4), {"target": -100})
    return compile_variants(plain_net, sizes, Training("bias-only"), target=target)


def _as_it_stands(target: Target) -> Program:
    """Two forward graphs as entries, without differentiation."""
    graphs = {"ops": other_ops(), "net": residual_net(2)}
    return compile_entries("entries", graphs, target=target)


def _drawn(seed: int, target: Target) -> Program:
    """A random graph with random training options."""
    graph = draw_net(seed, 2)
    return compile_program(graph, draw_training(graph, seed), target=target)


def cases() -> list[Case]:
    """All cases, by name."""
    pi, orin, mac = (load_device(name) for name in ("rpi4", "jetson-orin", "apple-m1"))
    dsp = load_device("snapdragon-dsp")
    clipped = Training("full", Adam(), Clip(value=0.5, norm=1.0), micro_batches=4)
    momentum = Training("full", Sgd(momentum=0.9, weight_decay=1e-3))
    rows = [
        Case("mobile-full-rpi4", _training(mobile_net, Training()), pi),
        Case("mobile-channels-rpi4", _training(mobile_net, Training(SPARSE)), pi),
        Case("mobile-micro-avx2", _training(mobile_net, clipped), AVX2),
        Case("mobile-head-dsp", _training(mobile_net, Training("head-only", Adafactor())), dsp),
        Case("resnet-momentum-orin", _training(residual_net, momentum), orin),
        Case("resnet-sparse-m1", _training(residual_net, Training("sparse")), mac),
        Case("plain-range-rpi4", _ranged, pi),
        Case("bert-full-orin", _training(bert_net, Training("full", AdamW())), orin),
        Case("bert-full-bf16", _training(bert_net, Training("full", AdamW())), AVX512, bf16=True),
        Case("bert-lora-m1", _training(bert_net, Training("lora-4", Adam())), mac),
        Case("bert-budget-rpi4", _training(partial(bert_net, 1, 256), _BUDGET), pi),
        Case("llama-last-avx512", _training(llama_net, Training("last-1-blocks", Sgd())), AVX512),
        Case("entries-rpi4", _as_it_stands, pi),
    ]
    return rows + [Case(f"random-{seed}-avx2", partial(_drawn, seed), AVX2) for seed in range(8)]


_BUDGET = Training("full", Sgd(), memory_budget=2_000_000)
