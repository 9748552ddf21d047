"""The worker process for MNN; see serve.py for its protocol."""

from importlib.metadata import version

from pockengine.farm.references.job import JobData
from pockengine.farm.references.serve import ReferenceTrainer, serve


def prepare(data: JobData, engine: str, threads: int) -> ReferenceTrainer:
    """Build the job's model in MNN on the CPU."""
    # Imported here: it prints a line, which must not mix with the replies.
    from pockengine.farm.references.mnn_reference import MnnTrainer

    return MnnTrainer(data, threads)


if __name__ == "__main__":
    serve(version("MNN"), prepare)
