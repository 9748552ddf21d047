"""The worker process of language models in PyTorch: it fine-tunes, a job with adapters by PEFT, or
generates with the cache of transformers.

An engine in bf16 is PyTorch under autocast, as its users run it.
The model and its loss are those of transformers.
"""

import inspect

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from pockengine.errors import FarmError
from pockengine.farm.references.engines import find_lm_engine
from pockengine.farm.references.job import Tensors
from pockengine.farm.references.lm_job import LmData, LmJob, read_lm_job
from pockengine.farm.references.serve import Answerer, serve


def prepare(data: LmData, engine: str, threads: int) -> "PreparedLm | Generator":
    """Load the job's model from its folder."""
    torch.set_num_threads(threads)
    if data.job.answer:
        return Generator(data)
    found = find_lm_engine(engine)
    return PreparedLm(data, found.compiled, found.dtype == "bf16")


class PreparedLm:
    """A model with its optimizer and its batches as tensors."""

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


class Generator(Answerer):
    """A model that answers a prompt, with the loop of a user who knows the number of tokens."""

    def __init__(self, data: LmData) -> None:
        """Load the job's model, and read the prompt if it is to be cached."""
        self.model = _model(data.job).eval()
        taken = inspect.signature(self.model.forward).parameters
        self.cache_name = next(name for name in ("cache", "past_key_values") if name in taken)
        self.prompt = torch.tensor([data.prompt])
        self.tokens = data.job.answer
        self.cache = transformers.DynamicCache()
        self.cached = data.job.cached
        if self.cached:
            self._forward(self.prompt[:, :-1])

    def answer(self) -> list[int]:
        """Generate the tokens of the answer."""
        read = self.prompt.shape[1] - 1 if self.cached else 0
        if not self.cached:
            self.cache = transformers.DynamicCache()
        elif self.cache.get_seq_length() > read:
            self.cache.crop(read - self.cache.get_seq_length())
        ids, answer = self.prompt[:, read:], list[int]()
        for _ in range(self.tokens):
            ids = self._forward(ids)
            answer.append(int(ids))
        return answer

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Read tokens into the cache; return the likeliest next one."""
        with torch.inference_mode():
            cache = {self.cache_name: self.cache}
            found = self.model(input_ids=ids, use_cache=True, logits_to_keep=1, **cache)
            token: torch.Tensor = found.logits[:, -1:].argmax(-1)
            return token


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
    serve(f"{torch.__version__}, transformers {transformers.__version__}", prepare, read_lm_job)
