"""A language model as a folder for a device: it trains and generates without Python.

artifact/        the program with its weights and the runner (backends/artifact.py)
tokenizer.bin    the tokenizer's table, with the pieces of the chat template
"""

from dataclasses import replace
from pathlib import Path

from pockengine.api import compile
from pockengine.backends.artifact import Artifact
from pockengine.backends.protocol import Progress
from pockengine.errors import FinetuneError, reason_of
from pockengine.files import write_whole
from pockengine.finetune.lm.chat import chat_of
from pockengine.finetune.lm.packing import LOGITS
from pockengine.finetune.lm.prepare import open_decoder
from pockengine.finetune.lm.tokens import open_tokenizer
from pockengine.models.decoding import decoding_graphs
from pockengine.models.tokenizer_table import ChatForm, tokenizer_table
from pockengine.options import CompileOptions

ARTIFACT, TABLE = "artifact", "tokenizer.bin"


def compile_for_device(
    folder: Path, out: Path, options: CompileOptions, shape: tuple[int, int], say: Progress
) -> Artifact:
    """Compile a decoder for steps of `shape`, rows and tokens, and for texts of as many tokens.

    ImportModelError or FinetuneError names what the device does not support.
    """
    batch, length = shape
    model = open_decoder(folder, length)
    tokenizer = open_tokenizer(folder, model.vocabulary)
    chat = chat_of(tokenizer, folder)
    if not model.separates_texts:
        chat = replace(chat, form=chat.form | ChatForm.MIXES)
    table = tokenizer_table(tokenizer.backend_tokenizer, chat)
    graph = model.graph(batch, length)
    entries = decoding_graphs(model.module, length, graph)
    del graph.outputs[LOGITS]
    compiled = compile(
        graph,
        None,
        options=options.replaced(outputs=()),
        entries=entries,
        folder=out / ARTIFACT,
        progress=say,
    )
    try:
        write_whole(out / TABLE, lambda part: _put(part, table))
    except OSError as error:
        raise FinetuneError(f"{out / TABLE} cannot be written: {reason_of(error)}") from error
    return compiled.artifact


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)
