"""Teach a model of children's stories to write like Shakespeare: its text before and after.

stories260K is a LLaMA with 260 thousand params, trained on TinyStories. All of it is fine-tuned on
TinyShakespeare, with the program that PockEngine compiles for this machine.

    python -m pockengine.examples.stories stories260K.bin tok512.bin input.txt
"""

import tempfile
from pathlib import Path

import click

from pockengine.errors import PockEngineError
from pockengine.finetune.lm.prepare import prepare
from pockengine.finetune.lm.run import Report, RunSettings, finetune
from pockengine.finetune.lm.sampling import Sampling
from pockengine.finetune.lm.settings import DECODER, Settings, Texts, TrainingSettings
from pockengine.models.llama2c import write_folder

LENGTH, BATCH, RATE = 128, 8, 1e-3
PROMPTS = ("Once upon a time", "ROMEO:", "The king said")


def teach(model: Path, text: Path, out: Path, scheme: str, steps: int, threads: int) -> Report:
    """Fine-tune the folder's model; return its losses and answers before and after."""
    course = TrainingSettings(
        LENGTH, BATCH, steps=steps, epochs=None, lr=RATE, warmup=min(20, steps // 2)
    )
    settings = Settings(model, Texts(text, hold_out=0.02), course, DECODER.replaced(scheme=scheme))
    prepared = prepare(settings, PROMPTS)
    run_settings = RunSettings(threads, sampling=Sampling(60, temperature=0.7), say=click.echo)
    return finetune(settings, prepared, out, run_settings)


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path, exists=True))
@click.argument("tokenizer", type=click.Path(path_type=Path, exists=True))
@click.argument("text", type=click.Path(path_type=Path, exists=True))
@click.option("--scheme", default="full", show_default=True)
@click.option("--steps", default=400, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(
    checkpoint: Path, tokenizer: Path, text: Path, scheme: str, steps: int, threads: int
) -> None:
    """Fine-tune CHECKPOINT of llama2.c, with its TOKENIZER, on TEXT."""
    with tempfile.TemporaryDirectory() as place:
        try:
            write_folder(checkpoint, tokenizer, Path(place) / "model")
            report = teach(Path(place) / "model", text, Path(place) / "out", scheme, steps, threads)
        except PockEngineError as error:
            raise click.ClickException(str(error)) from error
    for name, glimpse in (("before", report.before), ("after", report.after)):
        judged = glimpse.score
        click.echo(f"\n{name}: " + str(judged or ""))
        for prompt, answer in zip(PROMPTS, glimpse.answers, strict=True):
            click.echo(f"> {prompt}{answer}")
    click.echo(f"\n{report.tokens_per_second:,.0f} tokens/s")


if __name__ == "__main__":
    main()
