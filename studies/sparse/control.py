"""The control in PyTorch: the same module, data order, rates and seed give similar accuracy."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from pockengine import AdamW, Sgd
from pockengine.compiler.optim import Optimizer
from pockengine.compiler.sparse import Scheme
from pockengine.errors import FinetuneError
from pockengine.finetune.recipe import Recipe, batches
from pockengine.finetune.task import Examples, Task
from pockengine.studies.sparse.desk import Desk, LoadedPair
from pockengine.studies.sparse.schemes import FULL


def run_control(desk: Desk, table: LoadedPair, recipes: Mapping[Scheme, Recipe]) -> None:
    """Train everything in PyTorch with the first seed, once for each model; store its accuracy."""
    model = table.pair.model
    if any(True for _ in desk.journal.entries(kind="control", model=model)):
        return
    recipe = next(recipe for scheme, recipe in recipes.items() if scheme.name == FULL)
    recipe = replace(recipe, seed=table.effort.seeds[0])
    key = {
        "kind": "control",
        "model": model,
        "pair": str(table.pair),
        "scheme": FULL,
        "rate": recipe.rate,
        "epochs": recipe.epochs,
        "seed": recipe.seed,
        "subject": table.subject.digest()[:12],
        "train": table.task.tuning.train.digest()[:12],
        "judged_by": table.task.test.digest()[:12],
    }
    desk.tell(f"{table.pair}: the control in PyTorch")
    accuracy = train_in_torch(table.load(), recipe, table.task, table.subject.batch)
    engine = f"torch {torch.__version__}"
    desk.journal.put(key, {"accuracy": accuracy, "engine": engine, "commit": desk.commit})


def train_in_torch(module: nn.Module, recipe: Recipe, task: Task, batch: int) -> float:
    """Train all parameters in evaluation mode (norms as pretrained); return test accuracy."""
    module.eval()
    optimizer = torch_optimizer(recipe.optimizer, list(module.parameters()))
    train = task.tuning.train
    rates = recipe.rates(recipe.epochs * -(-len(train) // batch))
    step = 0
    for epoch in range(recipe.epochs):
        for rows in batches(len(train), batch, epoch, recipe.seed):
            step += 1
            for group in optimizer.param_groups:
                group["lr"] = rates(step)
            inputs, labels = _tensors(train, rows)
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(module(inputs), labels).backward()
            optimizer.step()
    right = 0
    with torch.no_grad():
        for rows in np.array_split(np.arange(len(task.test)), -(-len(task.test) // 100)):
            inputs, labels = _tensors(task.test, rows)
            right += int((module(inputs).argmax(1) == labels).sum())
    return right / len(task.test)


def torch_optimizer(optimizer: Optimizer, params: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the equivalent PyTorch optimizer; its rate is set before each step."""
    if isinstance(optimizer, Sgd):
        return torch.optim.SGD(params, 0.0, optimizer.momentum, weight_decay=optimizer.weight_decay)
    if isinstance(optimizer, AdamW):
        return torch.optim.AdamW(
            params, 0.0, optimizer.betas, optimizer.eps, weight_decay=optimizer.weight_decay
        )
    raise FinetuneError(f"the control knows Sgd and AdamW, not {optimizer}")


def _tensors(examples: Examples, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = next(iter(examples.inputs.values()))[rows]
    return torch.from_numpy(np.ascontiguousarray(inputs)), torch.from_numpy(examples.labels[rows])
