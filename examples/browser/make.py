"""Write a page that trains on the visitor's own drawings: a folder for any web server.

A small CNN is pretrained in PyTorch on scikit-learn's bundled digits, and compiled for wasm32. The
page loads the module and trains it on drawings, beside digits of the data set. A module with
threads needs a server that sends the headers of serve.py.
"""

import shutil
from pathlib import Path

import click
import numpy as np
import torch
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from torch import nn

from pockengine.api import compile
from pockengine.compiled import Compiled
from pockengine.compiler.optim import Sgd
from pockengine.errors import PockEngineError
from pockengine.models.cnn import SmallCNN

PAGE = Path(__file__).parent
FILES = ("index.html", "page.js", "session.js", "trainer.js", "thread.js")
BATCH = 16


def rows(seed: int = 0) -> dict[str, np.ndarray]:
    """Pictures x [N, 1, 8, 8] from -1 to 1 and their digits, target [N], in random order."""
    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    x = (data.images[order, None] / 8 - 1).astype(np.float32)
    return {"x": x, "target": data.target[order].astype(np.int64)}


def pretrain(data: dict[str, np.ndarray], epochs: int) -> SmallCNN:
    """Train on all digits in PyTorch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # such small pictures do not need a second thread
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    images, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["target"])
    for _ in range(epochs):
        for x, expected in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), expected).backward()
            optimizer.step()
    return model


def compile_page(model: SmallCNN, data: dict[str, np.ndarray], device: str) -> Compiled:
    """Compile the training of the page for a device."""
    example = (torch.from_numpy(data["x"][:BATCH]),)
    optimizer = Sgd(momentum=0.9)
    return compile(model, example, loss="cross_entropy", optimizer=optimizer, device=device)


def write_page(compiled: Compiled, data: dict[str, np.ndarray], out: Path) -> None:
    """Write the page with the module, its manifest, weights and rows into a folder."""
    artifact = compiled.artifact
    out.mkdir(parents=True, exist_ok=True)
    (module,) = artifact.folder.glob("lib/*.wasm")
    shutil.copyfile(module, out / "digits.wasm")
    for source in (*(PAGE / name for name in FILES), artifact.folder / "manifest.json"):
        shutil.copyfile(source, out / source.name)
    shutil.copyfile(artifact.weights, out / "weights.safetensors")
    save_file(data, out / "rows.safetensors")


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--epochs", default=8, show_default=True, help="Of pretraining.")
@click.option("--threads", is_flag=True, help="Compile for several threads (wasm32-threads).")
def main(out: Path, epochs: int, threads: bool) -> None:
    """Write the page into the folder OUT."""
    data, device = rows(), "wasm32-threads" if threads else "wasm32"
    try:
        write_page(compile_page(pretrain(data, epochs), data, device), data, out)
    except PockEngineError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"serve it by: python -m pockengine.examples.browser.serve {out}")


if __name__ == "__main__":
    main()
