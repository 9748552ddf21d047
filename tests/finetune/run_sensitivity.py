"""Measure the tiny model's items into a table, as a process that tests can kill.

Arguments: the table, "processes" or a scheduler, and the number of trials before a pause during
which a test kills the process (0: no pause).
"""

import sys
import time
from pathlib import Path

from pockengine.finetune.contributions import Contributions, Item
from pockengine.finetune.executor import open_executor
from pockengine.finetune.recipe import Recipe
from pockengine.finetune.sensitivity import SensitivityPlan, TrialProgress, measure
from pockengine.tests.finetune.tiny import tiny_subject, tiny_tuning

ITEMS = (
    Item("biases", "last 1 blocks"),
    Item("weight", "layers.1.weight", 0.5, "magnitude"),
    Item("weight", "layers.1.weight"),
)
SEEDS = (0, 1, 2)
RECIPE = Recipe(0.05, 2)
TRIALS = (len(ITEMS) + 1) * len(SEEDS)


def run(path: Path, scheduler: str, stop_after: int = 0) -> Contributions:
    """Measure all items and print each finished trial."""

    def tell(progress: TrialProgress) -> None:
        print(f"{progress.done} {progress.total} {progress.last}", flush=True)
        if progress.done == stop_after:
            time.sleep(600)

    with open_executor(scheduler, 1 if scheduler == "processes" else None) as executor:
        plan = SensitivityPlan(tiny_subject(), tiny_tuning(200), ITEMS, RECIPE, SEEDS)
        return measure(plan, path, executor, tell)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
