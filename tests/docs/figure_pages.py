"""The tables of the pages, by name."""

from pockengine.tests.docs.figure_table import Column, Ratio, Table
from pockengine.tests.docs.records import ROOT

OURS = {"engine": "pockengine"}
F32 = {"dtype": "f32"}
ZEN3, ZEN5 = (f"AMD Zen {version}, 2 cores, virtual machine" for version in (3, 5))
RAPIDS = "Intel Granite Rapids, 2 cores, virtual machine"
EMERALD = "Intel Emerald Rapids, 2 cores, virtual machine"
OTHERS = {
    "engine": ("torch-eager", "torch-eager-malloc", "torch-compile-malloc", "peft", "peft-malloc")
}
SCHEME = {"scheme": "scheme"}
STORED = ("", "-bf16", "-f16", "-int8", "-int4")
"""How an engine's name ends, by the type of its frozen weights."""
MODEL = {"model": "model"}


def _peers(file: str, *more: Column | Ratio, command: str = "") -> Table:
    return Table(
        file,
        MODEL | {"batch": "batch"},
        (
            Column("PockEngine, ms", "step_ms", "ms", OURS | F32),
            Column(
                "fastest other, ms",
                "step_ms",
                "ms",
                F32,
                besides="pockengine",
                lowest=True,
                named=True,
            ),
            Ratio("faster", "fastest other, ms", "PockEngine, ms"),
            *more,
        ),
        {"scheme": "full"},
        command=command,
    )


PEERS = _peers(
    "peers.jsonl",
    Column("PockEngine, MiB", "peak_rss_bytes", "MiB", OURS),
    Column(
        "leanest other, MiB", "peak_rss_bytes", "MiB", besides="pockengine", lowest=True, named=True
    ),
)
PEERS_INTEL = _peers(
    "peers-intel.jsonl",
    Column("in bf16, ms", "step_ms", "ms", {"engine": "pockengine-bf16"}),
    Ratio("faster in bf16", "fastest other, ms", "in bf16, ms"),
    command="./bazelw run //farm:bench -- --device=host --suite=peers --quick --bf16",
)
BOARD = Table(
    "rpi4.jsonl",
    SCHEME | {"engine": "engine"},
    (
        Column("instructions", "guest_instructions", "millions"),
        Column("modelled ms", "modelled_ms", "ms"),
        Column("arena, MiB", "arena_bytes", "MiB"),
        Column("peak, MiB", "peak_rss_bytes", "MiB"),
        Column("binary, KiB", "binary_bytes", "KiB"),
    ),
)


def _backends(metric: str, unit: str) -> tuple[Column, ...]:
    engines = {"C": "", "ONNX Runtime": "-onnx", "TFLite": "-tflite", "TVM": "-tvm"}
    return tuple(
        Column(title, metric, unit, {"engine": f"pockengine{suffix}"})
        for title, suffix in engines.items()
    )


RUNTIMES = Table(
    "runtimes.jsonl",
    MODEL | SCHEME,
    (
        *_backends("step_ms", "ms"),
        Column("PyTorch", "step_ms", "ms", {"engine": "torch-eager-cl-malloc"}),
        Column("TensorFlow", "step_ms", "ms", {"engine": "tf-graph"}),
        Column("ONNX Runtime training", "step_ms", "ms", {"engine": "ort-training"}),
    ),
    {"device": "host", "metric": "step_ms"},
)
RUNTIMES_BOARD = Table(
    "runtimes.jsonl", SCHEME, _backends("guest_instructions", "millions"), {"device": "rpi4"}
)
INT8 = Table(
    "int8.jsonl",
    {"device": "device"} | SCHEME | {"engine": "engine"},
    (
        Column("step, f32", "guest_instructions", "millions", F32),
        Column("step, int8", "guest_instructions", "millions", {"dtype": "int8"}),
        Column("f32, ms", "modelled_ms", "ms", F32),
        Column("int8, ms", "modelled_ms", "ms", {"dtype": "int8"}),
        Column("prediction, f32", "predict_guest_instructions", "millions", F32),
        Column("prediction, int8", "predict_guest_instructions", "millions", {"dtype": "int8"}),
        Column("arena, f32, MiB", "arena_bytes", "MiB", F32),
        Column("arena, int8, MiB", "arena_bytes", "MiB", {"dtype": "int8"}),
    ),
    names={"tflite": "TFLite"},
)
INT8_ACCURACY = Table(
    "int8-accuracy.jsonl",
    {"note": "arithmetic"},
    tuple(
        Column(title, "accuracy", "percent", {"model": model, "dataset": dataset})
        for title, model, dataset in (
            ("ResNet-8, CIFAR-10", "resnet8", "cifar10"),
            ("ResNet-20, CIFAR-10", "resnet20", "cifar10"),
            ("ResNet-20, Fashion-MNIST", "resnet20", "fashion_mnist"),
        )
    ),
)
MICROCONTROLLERS = Table(
    "microcontrollers.jsonl",
    {"device": "device"} | MODEL | {"dtype": "arithmetic", "engine": "engine", "note": "kernels"},
    (
        Column("instructions", "guest_instructions", "millions"),
        Column("RAM, bytes", "ram_bytes", "count"),
        Column("flash, bytes", "flash_bytes", "count"),
    ),
    {"emulated": True},
    names={"None": "DSP extension", "f32": "f32"},
)
TINY = {"engine": "tiny-training"}
TINY_ARENAS = Table(
    "microcontrollers.jsonl",
    MODEL,
    (
        Column("full", "arena_bytes", "KB", OURS | {"scheme": "full"}),
        Column("paper, full", "arena_bytes", "KB", TINY | {"scheme": "full"}),
        Column("sparse", "arena_bytes", "KB", OURS | {"scheme": "sparse"}),
        Column("paper, sparse", "arena_bytes", "KB", TINY | {"scheme": "sparse"}),
        Column(
            "paper, sparse, reordered", "arena_bytes", "KB", TINY | {"scheme": "sparse-reordered"}
        ),
    ),
    {"emulated": False},
)
PAIRS = Table(
    "sparse-records.jsonl",
    MODEL | {"dataset": "data"},
    (
        Column("full, %", "accuracy", "percent", {"scheme": "full"}),
        Column("searched, %", "accuracy", "percent", {"scheme": "searched"}),
        Column("`sparse`, %", "accuracy", "percent", {"scheme": "sparse"}),
        Column("bias-only, %", "accuracy", "percent", {"scheme": "bias-only"}),
        Column("LoRA, %", "accuracy", "percent", {"scheme": ("lora", "lora-8", "lora-16")}),
        *(
            Column(
                f"memory of {scheme}",
                "extra_arena_bytes",
                "MiB",
                {"scheme": scheme},
                plus="optimizer_state_bytes",
                hidden=True,
            )
            for scheme in ("full", "searched")
        ),
        Ratio("less memory", "memory of full", "memory of searched"),
    ),
    folder=ROOT / "studies" / "results",
    command="bazel run //studies/sparse -- --out studies/results",
    cpu="x86-64",
)
LANGUAGE = Table(
    "language.jsonl",
    MODEL | SCHEME | {"cpu": "CPU"},
    (
        Column("PyTorch or PEFT, ms", "step_ms", "ms", OTHERS, lowest=True),
        Column("PockEngine, ms", "step_ms", "ms", OURS),
        Ratio("faster", "PyTorch or PEFT, ms", "PockEngine, ms"),
        Column("PyTorch or PEFT, MiB", "peak_rss_bytes", "MiB", OTHERS, lowest=True),
        Column("PockEngine, MiB", "peak_rss_bytes", "MiB", OURS),
        Column(
            "in fewer bits, MiB",
            "peak_rss_bytes",
            "MiB",
            {"engine": ("pockengine-8bit", "pockengine-int4")},
            lowest=True,
        ),
    ),
    {"cpu": (ZEN3, ZEN5, EMERALD), "seq_len": 512},
    names={ZEN3: "Zen 3", ZEN5: "Zen 5", EMERALD: "Emerald Rapids"},
    command="bazel run //farm:bench -- --device=host --suite=llm --model MODEL --tokens 512",
)
LANGUAGE_BF16 = Table(
    "language.jsonl",
    MODEL | {"seq_len": "tokens"} | SCHEME | {"cpu": "CPU"},
    (
        Column("PockEngine, bf16", "step_ms", "ms", {"engine": "pockengine-bf16"}),
        Column(
            "PyTorch or PEFT, bf16",
            "step_ms",
            "ms",
            {"engine": ("torch-eager-bf16-malloc", "peft-bf16-malloc")},
        ),
        Ratio("faster", "PyTorch or PEFT, bf16", "PockEngine, bf16"),
        Column("PyTorch or PEFT, f32", "step_ms", "ms", OTHERS, lowest=True),
    ),
    {"cpu": (RAPIDS, EMERALD, ZEN5)},
    names={RAPIDS: "Granite Rapids", EMERALD: "Emerald Rapids", ZEN5: "Zen 5"},
)
GENERATION = Table(
    "generation.jsonl",
    MODEL | {"dtype": "frozen weights"},
    tuple(
        Column(f"{title}, {what} ms", f"{what}_ms", "ms", {"engine": engines})
        for what in ("prompt", "token")
        for title, engines in (
            ("PockEngine", tuple(f"pockengine{form}" for form in STORED)),
            ("llama.cpp", tuple(f"llama.cpp{form}" for form in STORED)),
            ("transformers", ("torch-eager",)),
        )
    ),
    names={"int8": "8 bits", "int4": "4 bits"},
)
PHONE_PEER = Table(
    "mobile-finetuner.jsonl",
    MODEL | SCHEME,
    (
        Column("PockEngine, s", "step_cpu_s", "s", OURS),
        Column(
            "MobileFineTuner, OpenBLAS, s",
            "step_cpu_s",
            "s",
            {"engine": "mobile-finetuner-openblas"},
        ),
        Ratio("faster", "MobileFineTuner, OpenBLAS, s", "PockEngine, s"),
        Column("PockEngine, MiB", "peak_rss_bytes", "MiB", OURS),
        Column(
            "MobileFineTuner, MiB",
            "peak_rss_bytes",
            "MiB",
            {"engine": "mobile-finetuner-openblas"},
        ),
    ),
)
PLANNED = Table(
    "llama2-7b.jsonl",
    SCHEME,
    (
        Column("f32, GB", "planned_bytes", "GB", F32 | {"batch": 2}),
        Column("4-bit frozen, GB", "planned_bytes", "GB", {"dtype": "int4", "batch": 2}),
        Column("bf16, GB", "planned_bytes", "GB", {"dtype": "bf16", "batch": 2, "note": None}),
        Column(
            "bf16, 8-bit states, GB",
            "planned_bytes",
            "GB",
            {"dtype": "bf16", "batch": 2, "note": "8-bit states"},
        ),
    ),
    {"board": "none"},
)
LIMITED = Table(
    "lm-memory.jsonl",
    MODEL | {"seq_len": "tokens", "note": "limit"},
    (
        Column("planned, MB", "planned_bytes", "MB"),
        Column("most used, MB", "peak_memory_bytes", "MB"),
        Column("a step, s", "step_ms", "seconds of ms"),
    ),
)
STORAGE = Table(
    "storage.jsonl",
    MODEL | {"batch": "batch"} | SCHEME,
    (
        Column("activations in f32, MiB", "arena_bytes", "MiB", F32),
        Column("in bf16, MiB", "arena_bytes", "MiB", {"dtype": "bf16"}),
    ),
    {"metric": "arena_bytes"},
)
SOLVER = Table(
    "recomputation.jsonl",
    MODEL | {"batch": "batch"},
    tuple(
        Column(title, "multiply_adds", "millions", {"note": note})
        for title, note in (
            ("without a budget", "no budget"),
            ("in half of the arena, greedy", "greedy"),
            ("with the solver", "solver"),
        )
    ),
)
STATES = Table(
    "storage.jsonl",
    {"dtype": "trained weights", "note": "optimizer states"},
    (
        Column("accuracy, %", "accuracy", "percent"),
        Column("weights and states, MiB", "weights_and_states_bytes", "MiB"),
    ),
    {"metric": ("accuracy", "weights_and_states_bytes")},
)
DIGITS = Table(
    "digits.jsonl",
    SCHEME,
    (
        Column("trained weights", "trained_parameters", "count"),
        Column("before, %", "accuracy_before", "percent"),
        Column("after, %", "accuracy", "percent"),
        Column("arena, KiB", "arena_bytes", "KiB"),
    ),
)
COMPILE = Table(
    "compile-time.jsonl",
    MODEL,
    (
        Column("passes and plans, s", "compile_s", "s"),
        Column("fusion, s", "fusion_s", "s"),
    ),
)
CONFORMANCE = Table(
    "conformance.jsonl",
    {"model": "suite"},
    (
        Column("passed", "passed", "count"),
        Column("failed", "failed", "count"),
        Column("unsupported", "unsupported", "count"),
    ),
)

TABLES = {
    "peers": PEERS,
    "peers-intel": PEERS_INTEL,
    "board": BOARD,
    "runtimes": RUNTIMES,
    "runtimes-board": RUNTIMES_BOARD,
    "int8": INT8,
    "int8-accuracy": INT8_ACCURACY,
    "microcontrollers": MICROCONTROLLERS,
    "tiny-arenas": TINY_ARENAS,
    "pairs": PAIRS,
    "language": LANGUAGE,
    "language-bf16": LANGUAGE_BF16,
    "generation": GENERATION,
    "mobile-finetuner": PHONE_PEER,
    "limited": LIMITED,
    "planned": PLANNED,
    "storage": STORAGE,
    "solver": SOLVER,
    "states": STATES,
    "digits": DIGITS,
    "compile-time": COMPILE,
    "conformance": CONFORMANCE,
}
