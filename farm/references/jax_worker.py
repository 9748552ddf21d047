"""The worker process for JAX; see serve.py for its protocol."""

import os

import jax

from pockengine.errors import FarmError
from pockengine.farm.references.jax_reference import JaxTrainer
from pockengine.farm.references.job import JobData
from pockengine.farm.references.serve import serve


def prepare(data: JobData, engine: str, threads: int) -> JaxTrainer:
    """Give the process its cores, one for each thread of JAX, then the model its weights."""
    cores = sorted(os.sched_getaffinity(0))
    if threads > len(cores):
        raise FarmError(f"{threads} threads were asked for; this process has {len(cores)}")
    if threads != len(cores):
        os.sched_setaffinity(0, cores[:threads])
    return JaxTrainer(data)


if __name__ == "__main__":
    serve(str(jax.__version__), prepare)
