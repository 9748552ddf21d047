"""The commands by name: where each one is, and the extras that it cannot start without.

Nothing is imported before its command is called, so that help and completion are at once there and
a missing package is told before any work.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CommandSpec:
    """A command `module:attribute` of ours, its line of help, and the extras that it needs."""

    place: str
    help: str
    extras: tuple[str, ...] = ()


SECTIONS: Mapping[str, Mapping[str, CommandSpec]] = {
    "Compile": {
        "compile": CommandSpec(
            "cli.compile:compile_command", "Compile MODEL to an artifact, a folder for a device."
        ),
        "inspect": CommandSpec(
            "cli.inspect:inspect_command",
            "Show what of MODEL trains, memory by layer, cost; or what an artifact holds.",
        ),
        "export": CommandSpec(
            "cli.export:export",
            "Write what a checkpoint trained: weights, adapters, an ONNX model.",
        ),
        "models": CommandSpec("cli.listings:models", "List what MODEL may be."),
        "devices": CommandSpec(
            "cli.listings:devices", "List the devices that programs can be built for."
        ),
    },
    "Train on this machine": {
        "train": CommandSpec("cli.train:train", "Train an artifact on rows of data."),
        "evaluate": CommandSpec(
            "cli.judge:evaluate", "Judge an artifact's weights by rows of data."
        ),
        "predict": CommandSpec(
            "cli.judge:predict", "Write an artifact's outputs for rows of data."
        ),
        "finetune-lm": CommandSpec(
            "cli.finetune_lm:finetune_lm",
            "Fine-tune a decoder of transformers on chats or texts.",
            ("language",),
        ),
        "plan-lm": CommandSpec(
            "cli.plan_lm:plan_lm",
            "Plan the memory of a decoder's training, from its shapes alone.",
            ("language",),
        ),
        "pictures": CommandSpec(
            "cli.pictures:pictures",
            "Turn a folder of pictures into the rows that an artifact trains on.",
            ("pictures",),
        ),
    },
    "What to train": {
        "sensitivity": CommandSpec(
            "cli.sensitivity:sensitivity_command",
            "Measure what each tensor of MODEL is worth training.",
        ),
        "search": CommandSpec(
            "cli.search:search_command",
            "Find the scheme of MODEL that gains the most within a budget.",
            ("search",),
        ),
    },
    "Speed": {
        "profile": CommandSpec(
            "cli.profile_step:profile", "Time every kernel of MODEL's training step here."
        ),
        "tune": CommandSpec(
            "cli.tune:tune_command", "Measure kernels' plans on a device, keep the best."
        ),
        "compile-time": CommandSpec(
            "cli.compile_time:compile_time", "Time every stage of compiling MODEL."
        ),
        "passes": CommandSpec(
            "cli.passes:passes_command", "Run passes on a graph that was dumped."
        ),
    },
    "Boards": {
        "boards": CommandSpec(
            "farm.cli.boards:boards", "List the boards: what and where they are."
        ),
        "add": CommandSpec("farm.cli.enroll:add", "Add the board at ssh://user@host.", ("farm",)),
        "ping": CommandSpec("farm.cli.enroll:ping", "Ask a board what it is.", ("farm",)),
        "run": CommandSpec(
            "farm.cli.jobs:run", "Run the jobs of a file on all boards that can.", ("farm",)
        ),
        "jobs": CommandSpec(
            "farm.cli.jobs:jobs", "List batches and how far their jobs are.", ("farm",)
        ),
        "leases": CommandSpec("farm.cli.jobs:leases", "List who has which board.", ("farm",)),
        "quarantine": CommandSpec(
            "farm.cli.jobs:quarantine", "List, shut out or let in boards that fail.", ("farm",)
        ),
        "log": CommandSpec("farm.cli.jobs:log", "Print what happened to the boards.", ("farm",)),
        "ab": CommandSpec(
            "farm.cli.ab:ab", "Have two artifacts train in turns on a board.", ("farm",)
        ),
    },
    "Figures": {
        "bench": CommandSpec(
            "farm.cli.bench:main",
            "Fine-tune on a board, check all numbers, measure.",
            ("farm", "torch"),
        ),
        "results": CommandSpec(
            "farm.cli.results:results_command", "List the newest of each stored figure.", ("farm",)
        ),
        "report": CommandSpec(
            "farm.cli.report:report",
            "Write the stored figures as one page of HTML.",
            ("farm", "report"),
        ),
        "history": CommandSpec(
            "farm.cli.results:history", "Draw a metric over the commits.", ("farm",)
        ),
        "compare": CommandSpec(
            "farm.cli.results:compare", "Compare a commit's figures with a baseline's.", ("farm",)
        ),
    },
    "This installation": {
        "doctor": CommandSpec(
            "cli.doctor:doctor", "Say what is installed, what is missing, and what brings it."
        ),
        "completion": CommandSpec(
            "cli.completion:completion", "Print what completes commands in a shell."
        ),
    },
}

ROWS: Mapping[str, CommandSpec] = {
    name: row for rows in SECTIONS.values() for name, row in rows.items()
}
