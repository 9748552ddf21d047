"""Data-driven channels within a trial: scored once per model and training set.

The compiler does not support shares `by` "activation" or "fisher"; before compilation they are
replaced by lists of channels. All weights are scored at once, since the single compilation costs
more than all the scores.
"""

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.channels import CRITERIA
from pockengine.compiler.sparse.scheme import channel_axis
from pockengine.errors import FinetuneError, SchemeError
from pockengine.files import place_once
from pockengine.finetune.recipe import order
from pockengine.finetune.selection import DATA_CRITERIA, channel_scores, list_channels
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples

EXAMPLES = 512
"""Maximum number of training examples that scores are averaged over."""

_SCORES = "scores.safetensors"


def settle_channels(
    subject: Subject, scheme: Scheme, train: Examples, folder: Path | None = None
) -> Scheme:
    """Return the scheme with every share by one of DATA_CRITERIA as a list of channels.

    A scheme without such shares is returned unchanged. `folder` caches the scores. FinetuneError
    for an int8 subject.
    """
    shares = {
        name: choice
        for name, choice in scheme.choices(subject.graph).items()
        if choice.kind == "share" and choice.by in DATA_CRITERIA
    }
    if not shares:
        return scheme
    if subject.quantize is not None:
        name, choice = next(iter(shares.items()))
        raise FinetuneError(
            f"{name} of {subject.name} is held as int8, whose channels cannot be scored by "
            f"{choice.by}; choose them by one of {', '.join(CRITERIA)}"
        )
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="pockengine-") as place:
            return settle_channels(subject, scheme, train, Path(place))
    criteria = dict.fromkeys(choice.by for choice in shares.values())
    scores = {by: _scores(subject, by, train, folder) for by in criteria}
    for name in shares:  # raises for a weight without channels, and so without scores
        channel_axis(scheme.name, subject.graph, subject.graph.params[name])
    scored = {name: (choice, scores[choice.by][name]) for name, choice in shares.items()}
    return list_channels(scheme, scored)


def _scores(subject: Subject, by: str, train: Examples, folder: Path) -> Mapping[str, np.ndarray]:
    """Score the channels of every weight that has channels, or read cached scores."""
    parts = (subject.digest(), train.digest(), by, str(EXAMPLES))
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    def make(place: Path) -> None:
        some = train.take(order(len(train), 0, 0)[: max(EXAMPLES, subject.batch)])
        scores = channel_scores(
            subject.graph, _sliceable(subject.graph), by, examples=some, target=subject.target
        )
        save_file(scores, place / _SCORES)

    return load_file(place_once(folder / "scores" / key, make) / _SCORES)


def _sliceable(graph: Graph) -> list[str]:
    """Return the weights whose channels can be trained separately."""
    names = []
    for name, param in graph.params.items():
        try:
            channel_axis("scored", graph, param)
        except SchemeError:
            continue
        if param.trainable:
            names.append(name)
    return names
