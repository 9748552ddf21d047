"""The worker process that fine-tunes language models in PyTorch, a job with adapters by PEFT.

An engine in bf16 is PyTorch under autocast, as its users run it.
The model and its loss are those of transformers.
"""

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.references.job import Tensors
from pockengine.farm.references.lm_job import LmData, LmJob, read_lm_job
from pockengine.farm.references.serve import serve


class TorchLm:
    """PyTorch with transformers, as a framework of a worker."""

    version = f"{torch.__version__}, transformers {transformers.__version__}"

    def prepare(self, data: LmData, engine: str, threads: int) -> "PreparedLm":
        """Load the job's model from its folder."""
        torch.set_num_threads(threads)
        found = find_lm_engine(engine)
        return PreparedLm(data, found.compiled, found.dtype == "bf16")


class PreparedLm:
    """A model with its optimiser and its batches as tensors."""

    file_bytes = 0

    def __init__(self, data: LmData, compiled: bool, autocast: bool) -> None:
        """Load the model; FarmError if it has no parameter that the job trains."""
        self.model = _model(data.job)
        self.forward = torch.compile(self.model) if compiled else self.model
        self.autocast = autocast
        trained = [x for x in self.model.parameters() if x.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=data.job.learning_rate)
        self.batches = [torch.from_numpy(np.array(ids)) for ids in data.tokens]

    def step(self, index: int) -> float:
        """Train on one batch and return its loss."""
        ids = self.batches[index]
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        self.optimizer.step()
        return float(loss.item())

    def predict(self, index: int) -> NDArray[np.float32]:
        """Return the logits of a batch."""
        with torch.no_grad():
            outputs = self.model(input_ids=self.batches[index], use_cache=False)
        return np.asarray(outputs.logits.numpy(), np.float32)

    def tensors(self) -> Tensors:
        """Return nothing: the losses of later batches verify the weights."""
        return {}


def _model(job: LmJob) -> torch.nn.Module:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job.model, dtype=torch.float32, local_files_only=True
    )
    if job.adapters is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, job.adapters, is_trainable=True)
    elif job.trainable is not None:
        parameters = dict(model.named_parameters())
        unknown = sorted(set(job.trainable) - set(parameters))
        if unknown:
            raise FarmError(f"the model has no parameter {unknown[0]!r}; it was to be trained")
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in job.trainable)
    trained: torch.nn.Module = model.train()
    return trained


if __name__ == "__main__":
    serve(TorchLm(), read_lm_job)
