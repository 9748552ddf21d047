"""The commands by name: where each one is, and the extras that it cannot start without.

Nothing is imported before its command is called, so help and completion are instant, and a missing
package is reported before any work.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A command `module:attribute` of ours, its line of help, and the extras that it needs."""

    place: str
    help: str
    extras: tuple[str, ...] = ()


SECTIONS: Mapping[str, Mapping[str, Row]] = {
    "Compile": {
        "compile": Row(
            "cli.compile:compile_command", "Compile MODEL to an artifact, a folder for a device."
        ),
        "inspect": Row(
            "cli.inspect:inspect_command",
            "Show what of MODEL trains, memory by layer, cost; or what an artifact holds.",
        ),
        "export": Row(
            "cli.export:export",
            "Write what a checkpoint trained: weights, adapters, an ONNX model.",
        ),
        "models": Row("cli.listings:models", "List what MODEL may be."),
        "devices": Row("cli.listings:devices", "List the devices that programs can be built for."),
    },
    "Train on this machine": {
        "train": Row("cli.train:train", "Train an artifact on rows of data."),
        "evaluate": Row("cli.judge:evaluate", "Judge an artifact's weights by rows of data."),
        "predict": Row("cli.judge:predict", "Write an artifact's outputs for rows of data."),
        "finetune-lm": Row(
            "cli.finetune_lm:finetune_lm",
            "Fine-tune a decoder of transformers on chats or texts.",
            ("language",),
        ),
        "plan-lm": Row(
            "cli.plan_lm:plan_lm",
            "Plan the memory of a decoder's training, from its shapes alone.",
            ("language",),
        ),
        "pictures": Row(
            "cli.pictures:pictures",
            "Turn a folder of pictures into the rows that an artifact trains on.",
            ("pictures",),
        ),
    },
    "What to train": {
        "sensitivity": Row(
            "cli.sensitivity:sensitivity_command",
            "Measure what each tensor of MODEL is worth training.",
        ),
        "search": Row(
            "cli.search:search_command",
            "Find the scheme of MODEL that gains the most within a budget.",
            ("search",),
        ),
    },
    "Speed": {
        "profile": Row(
            "cli.profile_step:profile", "Time every kernel of MODEL's training step here."
        ),
        "tune": Row("cli.tune:tune_command", "Measure kernels' plans on a device, keep the best."),
        "compile-time": Row(
            "cli.compile_time:compile_time", "Time every stage of compiling MODEL."
        ),
        "passes": Row("cli.passes:passes_command", "Run passes on a graph that was dumped."),
    },
    "Boards": {
        "boards": Row("farm.cli.boards:boards", "List the boards: what and where they are."),
        "add": Row("farm.cli.enroll:add", "Add the board at ssh://user@host.", ("farm",)),
        "ping": Row("farm.cli.enroll:ping", "Ask a board what it is.", ("farm",)),
        "run": Row(
            "farm.cli.jobs:run", "Run the jobs of a file on all boards that can.", ("farm",)
        ),
        "jobs": Row("farm.cli.jobs:jobs", "List batches and how far their jobs are.", ("farm",)),
        "leases": Row("farm.cli.jobs:leases", "List who has which board.", ("farm",)),
        "quarantine": Row(
            "farm.cli.jobs:quarantine", "List, shut out or let in boards that fail.", ("farm",)
        ),
        "log": Row("farm.cli.jobs:log", "Print what happened to the boards.", ("farm",)),
        "ab": Row("farm.cli.ab:ab", "Have two artifacts train in turns on a board.", ("farm",)),
    },
    "Figures": {
        "bench": Row(
            "farm.cli.bench:main",
            "Fine-tune on a board, check all numbers, measure.",
            ("farm", "torch"),
        ),
        "results": Row(
            "farm.cli.results:results_command", "List the newest of each stored figure.", ("farm",)
        ),
        "report": Row(
            "farm.cli.report:report",
            "Write the stored figures as one page of HTML.",
            ("farm", "report"),
        ),
        "history": Row("farm.cli.results:history", "Draw a metric over the commits.", ("farm",)),
        "compare": Row(
            "farm.cli.results:compare", "Compare a commit's figures with a baseline's.", ("farm",)
        ),
    },
    "This installation": {
        "doctor": Row(
            "cli.doctor:doctor", "List what is installed and missing, and how to install it."
        ),
        "completion": Row("cli.completion:completion", "Print what completes commands in a shell."),
    },
}

ROWS: Mapping[str, Row] = {name: row for rows in SECTIONS.values() for name, row in rows.items()}
