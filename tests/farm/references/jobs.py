"""Small training jobs with seeded random data, for the tests of the reference engines."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pockengine.farm.references.job import JobData, Tensors, TrainingJob


def random_job(
    weights: Tensors, shape: tuple[int, ...], steps: int = 3, **settings: Any
) -> JobData:
    """Return a job on random images [steps, *shape] and labels below the job's classes."""
    random = np.random.default_rng(0)
    job = TrainingJob(**{"model": "mobilenet_v2-0.35-32", "classes": 10, **settings})
    images: NDArray[np.float32] = random.normal(size=(steps, *shape)).astype(np.float32)
    return JobData(job, weights, images, random.integers(0, job.classes, (steps, shape[0])))


def relative_error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest element or to 1e-3."""
    scale = max(float(np.abs(expected).max()), 1e-3)
    return float(np.abs(found.astype(np.float64) - expected).max()) / scale
