"""The worker process that generates by llama.cpp, through llama-cpp-python.

See serve.py and lm_job.py. The engine of a prepare request is a GGUF file. Settings are
llama.cpp's own: its cache is f16, and with weights in few bits it rounds the rows that meet them to
8 bits.
"""

import llama_cpp
import numpy as np

from pockengine.farm.references.lm_job import LmData, read_lm_job
from pockengine.farm.references.serve import Answerer, serve


def prepare(data: LmData, engine: str, threads: int) -> "LlamaCppGenerator":
    """Load a GGUF file."""
    return LlamaCppGenerator(engine, data, threads)


class LlamaCppGenerator(Answerer):
    """A model that answers a prompt."""

    def __init__(self, file: str, data: LmData, threads: int) -> None:
        """Load the model, and read the prompt if it is to be cached."""
        self.prompt, self.tokens = data.prompt, data.job.answer
        self.cached = len(self.prompt) - 1 if data.job.cached else 0
        self.model = llama_cpp.Llama(
            file,
            n_ctx=len(self.prompt) + self.tokens,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self.model.eval(self.prompt)

    def answer(self) -> list[int]:
        """Generate the tokens of the answer; what is cached after `n_tokens` is read again."""
        self.model.n_tokens = self.cached
        read, answer = self.prompt[self.cached :], list[int]()
        for _ in range(self.tokens):
            self.model.eval(read)
            logits = llama_cpp.llama_get_logits_ith(self.model.ctx, -1)
            shape = (self.model.n_vocab(),)
            read = [int(np.ctypeslib.as_array(logits, shape=shape).argmax())]
            answer += read
        return answer


if __name__ == "__main__":
    serve(f"llama-cpp-python {llama_cpp.__version__}", prepare, read_lm_job)
