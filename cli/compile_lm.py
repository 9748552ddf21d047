"""`pockengine compile-lm MODEL --device rpi4 --out folder`: a decoder for a device."""

from pathlib import Path

import click

from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import OutputFolder, console, json_option, print_json
from pockengine.cli.texts import LENGTH, ModelFolder
from pockengine.options import CompileOptions


@click.command("compile-lm")
@click.argument("model", type=ModelFolder())
@click.option("--out", required=True, type=OutputFolder(), help="Folder to write.")
@click.option(
    "--max-length",
    "length",
    default=LENGTH,
    show_default=True,
    type=click.IntRange(2),
    help="Tokens of a row, and of a chat.",
)
@click.option(
    "--batch", default=1, show_default=True, type=click.IntRange(1), help="Rows per step."
)
@compile_options(
    *("device", "scheme", "optimizer", "clip", "micro_batches", "memory_budget", "bf16", "storage"),
    scheme="lora",
    optimizer="adamw",
    clip=1.0,
)
@json_option
def compile_lm(
    model: Path, out: Path, length: int, batch: int, options: CompileOptions, as_json: bool
) -> None:
    """Compile the decoder in MODEL, a transformers folder, with its tokenizer, for a device.

    A device needs only the folder --out: its runner trains the model, and generates answers.
    """
    from pockengine.finetune.lm.device import (  # late: PyTorch takes seconds
        ARTIFACT,
        TABLE,
        compile_for_device,
    )

    terminal = console()
    say = (lambda text: None) if as_json else terminal.print
    artifact = compile_for_device(model, out, options, (batch, length), say=say)
    runner = (artifact.executable).relative_to(artifact.folder)
    command = f"{ARTIFACT}/{runner} chat --weights {ARTIFACT}/{artifact.weights.name}"
    command += f" --tokenizer {TABLE}"
    if as_json:
        facts = {"arena_bytes": artifact.arena_bytes, "params_bytes": artifact.params_bytes}
        print_json({"folder": str(out), "command": command, **facts})
        return
    terminal.print(f"{artifact}\n\nin {out}, on the device:\n  {command}", soft_wrap=True)
