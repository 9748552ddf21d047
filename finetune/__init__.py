"""Find which parameters are worth training, and confirm it by real fine-tunings in compiled C."""

from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Task, Tuning, load_task, load_tuning, split
from pockengine.finetune.trial import TrialOutcome, run_trial

__all__ = [
    "Examples",
    "Recipe",
    "Subject",
    "Task",
    "TrialOutcome",
    "Tuning",
    "load_task",
    "load_tuning",
    "run_trial",
    "split",
]
