"""Find which parameters are worth training, and prove it by real fine-tunings in compiled C."""

from pockengine.finetune.recipe import Recipe
from pockengine.finetune.subject import Subject
from pockengine.finetune.task import Examples, Task, Tuning, load_task, load_tuning, split
from pockengine.finetune.trial import Outcome, run_trial

__all__ = [
    "Examples",
    "Outcome",
    "Recipe",
    "Subject",
    "Task",
    "Tuning",
    "load_task",
    "load_tuning",
    "run_trial",
    "split",
]
