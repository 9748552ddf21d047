"""`pockengine finetune-lm MODEL --data chats.jsonl`: fine-tune a decoder of transformers here."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pockengine.backends.rate_schedule import PLAIN
from pockengine.backends.training.callbacks import Callback
from pockengine.backends.training.reports import MlflowLog, TensorBoardLog, TrackioLog
from pockengine.cli.duty import duty_options
from pockengine.cli.option_fields import compile_options
from pockengine.cli.options import (
    OutputFolder,
    console,
    json_option,
    print_json,
)
from pockengine.cli.rows import threads_option
from pockengine.cli.steps import Steps
from pockengine.cli.texts import LENGTH, ModelFolder, RowForm, row_options
from pockengine.compiler.optim import LoraPlus
from pockengine.finetune.lm.judging import RewardScore
from pockengine.finetune.lm.methods import METHODS, PREFERENCES, SFT, Drawing, Method
from pockengine.finetune.lm.sampling import Sampling
from pockengine.finetune.lm.settings import Settings, Texts, TrainingSettings
from pockengine.options import CompileOptions
from pockengine.terminal import Say

if TYPE_CHECKING:
    from pockengine.finetune.lm.prepare import FineTuneInputs
    from pockengine.finetune.lm.run import Report

REPORTS: dict[str, Callable[[Path], Callback]] = {
    "tensorboard": lambda out: TensorBoardLog(out / "tensorboard"),
    "mlflow": lambda out: MlflowLog(run_name=out.name),
    "trackio": lambda out: TrackioLog(out.name),
}
LOSSES = (
    "training loss: the mean over the epoch's batches, each before its own step; held-out "
    "loss: the mean over all held-out texts"
)
REWARDS = (
    "mean reward: of the answers drawn in the epoch, each before its own step; held-out "
    "reward: the mean over the likeliest answers to held-out prompts"
)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
TEXTS = click.Path(path_type=Path, exists=True)


@click.command("finetune-lm")
@click.argument("model", type=ModelFolder())
@click.option(
    "--data",
    required=True,
    type=TEXTS,
    help="JSON lines of chats, a folder of the package datasets, or one plain text.",
)
@click.option("--validation", type=TEXTS, help="Evaluation texts, instead of held-out ones.")
@click.option("--hold-out", default=0.1, show_default=True, type=click.FloatRange(0, 0.9))
@click.option("--out", required=True, type=OutputFolder(), help="Folder of the training.")
@click.option(
    "--method",
    default=SFT,
    show_default=True,
    type=click.Choice(METHODS),
    help="Learn from texts (sft), pairs (dpo, ipo, orpo), labels (kto), rewards (weighted), the "
    "logits of a teacher (distill), or answers that the model generates (grpo).",
)
@click.option(
    "--beta",
    type=float,
    help=f"Weight of the preference ({', '.join(PREFERENCES)}); default: {Method.beta:g}.",
)
@click.option(
    "--lora-plus",
    type=click.FloatRange(1),
    help="LoRA+: factors B learn at this many times the rate of factors A.",
)
@click.option(
    "--neftune",
    type=click.FloatRange(0, min_open=True),
    help="NEFTune: noise on embeddings while training, of this alpha; 5 is common.",
)
@click.option("--teacher", type=FILE, help="Stored logits, for --method distill.")
@click.option(
    "--reward",
    metavar="MODULE:FUNCTION",
    help="For --method grpo: function(line, answer) returns a number.",
)
@click.option(
    "--group",
    type=int,
    help=f"Answers that grpo draws to a prompt, which --batch counts; default: {Drawing.group}.",
)
@compile_options(
    *("scheme", "optimizer", "clip", "micro_batches", "memory_budget", "bf16", "storage"),
    scheme="lora",
    optimizer="adamw",
    clip=1.0,
)
@row_options(LENGTH)
@click.option(
    "--batch", default=1, show_default=True, type=click.IntRange(1), help="Rows per step."
)
@click.option("--epochs", type=click.IntRange(1), help="Default: 1; or give --steps.")
@click.option("--steps", type=click.IntRange(1), help="Number of the last step.")
@click.option("--lr", type=float, help="Default: 2e-4 for lora, else 2e-5.")
@click.option(
    "--schedule",
    default="cosine",
    show_default=True,
    type=click.Choice(PLAIN),
)
@click.option("--warmup", default=0, show_default=True, type=click.IntRange(0))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--prompt", "prompts", multiple=True, help="Prompt to answer before and after.")
@click.option("--answer-tokens", default=48, show_default=True, type=click.IntRange(0))
@click.option("--temperature", default=0.0, show_default=True, help="0 is greedy.")
@click.option(
    "--top-p",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True),
    help="Draw from the fewest tokens that have this share together.",
)
@click.option(
    "--report-to",
    "reports",
    multiple=True,
    type=click.Choice(list(REPORTS)),
    help="Figures of steps and epochs to this tool too; TensorBoard's are in OUT/tensorboard.",
)
@click.option("--save-every", type=click.IntRange(1), help="Steps; default: an epoch.")
@click.option("--merge/--no-merge", default=True, show_default=True, help="Write merged weights.")
@click.option("--resume", is_flag=True, help="Resume from the newest checkpoint of --out.")
@duty_options
@threads_option
@json_option
def finetune_lm(
    model: Path,
    data: Path,
    validation: Path | None,
    hold_out: float,
    out: Path,
    options: CompileOptions,
    as_json: bool,
    **choices: Any,
) -> None:
    """Fine-tune the decoder in MODEL, a folder of transformers, on texts; write its new weights.

    A line of --data is {"messages": [...]}, {"prompt": ..., "completion": ...} or {"text": ...}:
    answers and completions count in the loss, prompts do not. Short texts share a row, but do
    not attend to each other. Preferences are {"prompt": ..., "chosen": ..., "rejected": ...}. KTO
    adds "label": true or false to an answer, weighted learning "reward": a number. GRPO takes
    {"prompt": ...}.
    """
    if choices["epochs"] and choices["steps"]:
        raise click.UsageError("give --epochs or --steps, not both")
    choices["callbacks"] += [REPORTS[name](out) for name in choices["reports"]]
    options = _with_lora_plus(options, choices["lora_plus"])
    form: RowForm = choices.pop("form")
    texts = Texts(data, validation, hold_out, truncate=form.truncate, together=form.together)
    settings = Settings(model, texts, _course(form.length or LENGTH, choices), options)
    terminal = console()
    say: Say = _nothing if as_json else terminal.print
    say(f"reading {model} and {data}")
    report, prepared = _train(settings, out, choices, say)
    if as_json:
        return print_json(_facts(report, prepared.remarks))
    _show(report, [prepared.tokenizer.decode(ids) for ids in prepared.questions], terminal)


def _train(
    settings: Settings, out: Path, choices: dict[str, Any], say: Say
) -> "tuple[Report, FineTuneInputs]":
    """Read the model and the texts, train, and write the results."""
    from pockengine.finetune.lm.prepare import prepare  # late: PyTorch takes seconds
    from pockengine.finetune.lm.run import RunSettings, finetune

    prepared = prepare(settings, choices["prompts"])
    for remark in prepared.remarks:
        click.echo(remark, err=True)
    rows = prepared.training
    say(f"{rows.tokens:,} tokens in {rows.rows} rows of {settings.course.length}")
    names = ("threads", "resume", "save_every", "merge", "callbacks")
    run = _select(choices, *names) | {"sampling": _sampling(settings.course.length, choices)}
    compiling = nullcontext if say is _nothing else Steps
    return finetune(
        settings, prepared, out, RunSettings(say=say, compiling=compiling, **run)
    ), prepared


def _check_read(choices: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that the method does not read."""
    method = choices["method"]
    for option, methods in (("beta", PREFERENCES), ("group", ("grpo",))):
        if choices[option] is not None and method not in methods:
            raise click.UsageError(
                f"--method {method} does not read --{option}; {', '.join(methods)} "
                f"{'do' if len(methods) > 1 else 'does'}"
            )


def _with_lora_plus(options: CompileOptions, ratio: float | None) -> CompileOptions:
    if ratio is None:
        return options
    return options.replaced(optimizer=LoraPlus(options.optimizer, ratio))


def _nothing(text: str) -> None:
    """Print nothing: the output is only JSON."""


def _sampling(length: int, choices: dict[str, Any]) -> Sampling:
    tokens = min(choices["answer_tokens"], length - 1)
    return Sampling(tokens, choices["temperature"], top_p=choices["top_p"])


def _select(choices: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: choices[name] for name in names}


def _course(length: int, choices: dict[str, Any]) -> TrainingSettings:
    _check_read(choices)
    names = ("batch", "steps", "lr", "schedule", "warmup", "seed", "neftune")
    epochs = None if choices["steps"] else choices["epochs"] or 1
    beta = Method.beta if choices["beta"] is None else choices["beta"]
    method = Method(choices["method"], beta, choices["teacher"], _drawing(length, choices))
    return TrainingSettings(length, epochs=epochs, method=method, **_select(choices, *names))


def _drawing(length: int, choices: dict[str, Any]) -> Drawing | None:
    if choices["reward"] is None:
        return None
    group = Drawing.group if choices["group"] is None else choices["group"]
    return Drawing(choices["reward"], group, min(choices["answer_tokens"], length - 1))


def _facts(report: "Report", remarks: Sequence[str]) -> dict[str, Any]:
    return {
        "before": report.before.facts(),
        "after": report.after.facts(),
        "steps": report.history.steps[-1].number if report.history.steps else 0,
        "seconds": report.seconds,
        "tokens_per_second": report.tokens_per_second,
        "arena_bytes": report.arena_bytes,
        "remarks": list(remarks),
        "written": [str(path) for path in report.written],
    }


def _show(report: "Report", questions: Sequence[str], terminal: Any) -> None:
    """Print the result, below the "before" line of the run, and the paths of the written files."""
    if report.after.score is not None:
        terminal.print(f"after: {report.after.score}")
    answers = zip(questions, report.before.answers, report.after.answers, strict=False)
    for question, before, after in answers:
        terminal.print(f"\n> {question}\nbefore: {before}\nafter:  {after}")
    rewarded = isinstance(report.after.score or report.before.score, RewardScore)
    terminal.print(f"\n{REWARDS if rewarded else LOSSES}")
    terminal.print(f"{report.tokens_per_second:,.0f} tokens/s, arena {report.arena_bytes:,} bytes")
    for path in report.written:
        terminal.print(f"written {path}", soft_wrap=True)
