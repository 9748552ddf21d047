"""The commands by name, with their modules and required extras.

Nothing is imported before its command is called, so help and completion are instant, and a missing
package is reported before any work.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A built-in command `module:attribute`: its help, an example, and the required extras."""

    place: str
    help: str
    example: str
    extras: tuple[str, ...] = ()


SECTIONS: Mapping[str, Mapping[str, Row]] = {
    "Compile": {
        "compile": Row(
            "cli.compile:compile_command",
            "Compile MODEL to an artifact, a folder for a device.",
            "compile net:digits_net --device rpi4 --out digits",
        ),
        "inspect": Row(
            "cli.inspect:inspect_command",
            "Show MODEL's trained parameters, memory and cost; or an artifact's contents.",
            "inspect net:digits_net --device rpi4 --scheme sparse",
        ),
        "export": Row(
            "cli.export:export",
            "Export a checkpoint's weights: safetensors, adapters, an ONNX model.",
            "export digits tuned.safetensors --out weights.safetensors",
        ),
        "models": Row(
            "cli.listings:models", "List the models by name, and other forms of MODEL.", "models"
        ),
        "devices": Row("cli.listings:devices", "List the supported devices.", "devices"),
    },
    "Train on this machine": {
        "train": Row(
            "cli.train:train",
            "Train an artifact on rows of data.",
            "train digits --data rows.npz --epochs 5 --lr 0.1",
        ),
        "evaluate": Row(
            "cli.judge:evaluate",
            "Evaluate an artifact's weights on rows of data.",
            "evaluate digits --data rows.npz --metric accuracy",
        ),
        "predict": Row(
            "cli.judge:predict",
            "Write an artifact's outputs for rows of data.",
            "predict digits --data rows.npz --out outputs.safetensors",
        ),
        "finetune-lm": Row(
            "cli.finetune_lm:finetune_lm",
            "Fine-tune a transformers decoder on chats or texts.",
            "finetune-lm MODEL --data chats.jsonl --out tuned",
            ("language",),
        ),
        "compile-lm": Row(
            "cli.compile_lm:compile_lm",
            "Compile a decoder for a device, which trains it and answers without Python.",
            "compile-lm MODEL --device rpi4 --out folder",
            ("language",),
        ),
        "pack-lm": Row(
            "cli.pack_lm:pack_lm",
            "Pack chats or texts into the rows of tokens that a device trains on.",
            "pack-lm MODEL --data chats.jsonl --out rows.safetensors",
            ("language",),
        ),
        "plan-lm": Row(
            "cli.plan_lm:plan_lm",
            "Plan the memory of training a decoder, from its shapes alone.",
            "plan-lm llama2-7b --batch 1 --max-length 512",
            ("language",),
        ),
        "pictures": Row(
            "cli.pictures:pictures",
            "Turn a folder of pictures into the rows that an artifact trains on.",
            "pictures photos digits rows",
            ("pictures",),
        ),
    },
    "What to train": {
        "sensitivity": Row(
            "cli.sensitivity:sensitivity_command",
            "Measure the gain of training each tensor of MODEL.",
            "sensitivity net:digits_net --train train.npz --out gains.jsonl",
        ),
        "search": Row(
            "cli.search:search_command",
            "Find the scheme of MODEL with the largest gain within a budget.",
            "search net:net --contributions g.jsonl --memory 9KB --out s.toml",
            ("search",),
        ),
    },
    "Speed": {
        "profile": Row(
            "cli.profile_step:profile",
            "Time every kernel of MODEL's training step on this machine.",
            "profile net:digits_net",
        ),
        "tune": Row(
            "cli.tune:tune_command",
            "Measure kernel plans on a device and store the fastest.",
            "tune net:digits_net --device rpi4 --out tuned.json",
        ),
        "budgets": Row(
            "cli.budgets:budgets",
            "Show what smaller memory budgets cost MODEL.",
            "budgets net:digits_net --batch 64",
        ),
        "compile-time": Row(
            "cli.compile_time:compile_time",
            "Time every stage of compiling MODEL.",
            "compile-time net:digits_net",
        ),
        "passes": Row(
            "cli.passes:passes_command", "Run passes on a dumped graph.", "passes --list"
        ),
    },
    "Boards": {
        "boards": Row("farm.cli.boards:boards", "List the boards and their addresses.", "boards"),
        "add": Row(
            "farm.cli.enroll:add",
            "Add the board at ssh://user@host or adb://SERIAL.",
            "add ssh://pi@192.168.1.20",
            ("farm",),
        ),
        "ping": Row("farm.cli.enroll:ping", "Print a board's facts.", "ping rpi4-qemu", ("farm",)),
        "run": Row(
            "farm.cli.jobs:run",
            "Run the jobs of a file on all suitable boards.",
            "run jobs.toml --out results",
            ("farm",),
        ),
        "jobs": Row(
            "farm.cli.jobs:jobs", "List batches and the progress of their jobs.", "jobs", ("farm",)
        ),
        "leases": Row("farm.cli.jobs:leases", "List the leases of boards.", "leases", ("farm",)),
        "quarantine": Row(
            "farm.cli.jobs:quarantine",
            "List, add or release quarantined boards.",
            "quarantine rpi4-qemu --release",
            ("farm",),
        ),
        "log": Row("farm.cli.jobs:log", "Print the history of boards.", "log rpi4-qemu", ("farm",)),
        "ab": Row(
            "farm.cli.ab:ab",
            "Time two artifacts in turns on a board.",
            "ab rpi4-qemu before after --data train.npz",
            ("farm",),
        ),
    },
    "Figures": {
        "bench": Row(
            "farm.cli.bench:main",
            "Fine-tune on a board, check every number, and measure.",
            "bench --device rpi4",
            ("farm", "torch"),
        ),
        "results": Row(
            "farm.cli.results:results_command",
            "List the newest record of each figure.",
            "results",
            ("farm",),
        ),
        "report": Row(
            "farm.cli.report:report",
            "Write the stored figures as one HTML page.",
            "report --out report.html",
            ("farm", "report"),
        ),
        "cycles": Row(
            "farm.cli.cycles:cycles",
            "Model a program's time on a board that you do not have.",
            "cycles --calibration",
        ),
        "history": Row(
            "farm.cli.results:history",
            "Draw a metric over the commits.",
            "history guest_instructions --device rpi4",
            ("farm",),
        ),
        "compare": Row(
            "farm.cli.results:compare",
            "Compare a commit's figures with a baseline's.",
            "compare --baseline main --device rpi4",
            ("farm",),
        ),
    },
    "This installation": {
        "doctor": Row(
            "cli.doctor:doctor",
            "List what is installed and missing, and how to install it.",
            "doctor --quick",
        ),
        "completion": Row(
            "cli.completion:completion",
            "Print a shell's completion script.",
            "completion bash",
        ),
    },
}

ROWS: Mapping[str, Row] = {name: row for rows in SECTIONS.values() for name, row in rows.items()}
