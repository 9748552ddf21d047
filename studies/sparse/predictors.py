"""Predictors of a scheme's accuracy: cheap ones compared with real trainings of many schemes.

`sparse-predictors.jsonl` has a line per scheme: a pair, the values of the predictors, and `held`,
the accuracy after all epochs at the better of two rates on 2000 examples of the training set that
are not used otherwise. Schemes are the presets, results of an earlier search, and draws within the
budget.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pockengine.errors import FinetuneError
from pockengine.finetune.ranks import rank_correlation

FILE = "sparse-predictors.jsonl"
MEANINGS = {
    "gains in accuracy": "sum of what its items gained alone in accuracy, by probes",
    "gains in loss": "sum of what they gained in training loss, by the same probes",
    "Fisher information": "squared gradients of 30 batches' losses, summed over what trains",
    "gradient": "their absolute values, summed over what trains: the first-order gain of Adam",
    "one epoch": "accuracy on the validation part after one real epoch, the better of two rates",
    "all epochs": "the same after all epochs: one seed of a race",
}
"""Predictors in the order of the table, with their definitions."""


@dataclass(frozen=True)
class PredictedScheme:
    """A scheme's predictors by name, and its accuracy on held-out training examples."""

    pair: str
    scheme: str
    predictors: Mapping[str, float]
    accuracy: float


def read_predictors(path: Path) -> list[PredictedScheme]:
    """Read the records; none without a file, FinetuneError if a line is damaged."""
    if not path.exists():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            records.append(
                PredictedScheme(
                    row["pair"], row["scheme"], dict(row["predictors"]), float(row["held"])
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FinetuneError(f"{path}, line {number} is no record: {error!r}") from error
    return records


def predictor_section(records: Sequence[PredictedScheme]) -> str:
    """Compare the predictors by rank correlation over the schemes that have all of them."""
    if not records:
        return ""
    whole = [one for one in records if set(MEANINGS) <= set(one.predictors)]
    pairs = list(dict.fromkeys(one.pair for one in whole))
    counted = [f"{pair} ({sum(one.pair == pair for one in whole)} schemes)" for pair in pairs]
    lines = [
        "## What foretells a scheme",
        "",
        "Spearman's rank correlation of predictors with the accuracy after all epochs on 2000 "
        "examples of the training set that nothing else reads. The schemes are an earlier search's "
        "finalists and draws within the budget.",
        "",
        f"| predictor | {' | '.join(counted)} |",
        f"|---|{'---|' * len(pairs)}",
    ]
    for name, meaning in MEANINGS.items():
        cells = [_correlation([one for one in whole if one.pair == pair], name) for pair in pairs]
        lines.append(f"| {name}: {meaning} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _correlation(records: Sequence[PredictedScheme], predictor: str) -> str:
    rho = rank_correlation(
        [one.predictors[predictor] for one in records], [one.accuracy for one in records]
    )
    return "" if rho is None else f"{rho:+.2f}"
