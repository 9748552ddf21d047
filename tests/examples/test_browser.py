"""The page in Node and in Chromium trains with the losses of C on the same rows."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pockengine.examples.browser.make import BATCH, compile_page, pretrain, rows, write_page

STEPS, RATE = 10, 0.02
NODE = """
const fs = require("fs");
const { Session, readTensors, trainRows } = require("./train.js");
const read = (name) => new Uint8Array(fs.readFileSync(name)).buffer;
const manifest = JSON.parse(fs.readFileSync("manifest.json"));
Session.open(read("digits.wasm"), manifest, read("weights.safetensors")).then((session) => {
  const rows = readTensors(read("rows.safetensors"));
  console.log(JSON.stringify(trainRows(session, rows, 10, 0.02)));
});
"""


@pytest.fixture(name="page", scope="module")
def page_and_losses(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    folder, data = tmp_path_factory.mktemp("page"), rows()
    model = pretrain(data, epochs=0)
    write_page(compile_page(model, data, "wasm32"), data, folder)
    batches = [{name: array[i : i + BATCH] for name, array in data.items()}
               for i in range(0, STEPS * BATCH, BATCH)]  # fmt: skip
    with compile_page(model, data, "host").session() as session:
        losses = [float(session.train_step(batch, lr=RATE)["loss"]) for batch in batches]
    assert losses[-1] < losses[0]
    return folder, losses


@contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs for WebAssembly")
def test_the_module_in_node_has_cs_losses(page: tuple[Path, list[float]]) -> None:
    folder, losses = page

    done = subprocess.run(
        ["node", "-e", NODE], cwd=folder, capture_output=True, text=True, check=True
    )

    np.testing.assert_allclose(json.loads(done.stdout), losses, rtol=1e-5)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="apt-get install chromium")
def test_the_page_in_chromium_has_cs_losses(page: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder, losses = page
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]

    with served(folder) as address:
        done = subprocess.run(
            ["chromium", *options, "--virtual-time-budget=60000", "--dump-dom",
             f"{address}/index.html?check={STEPS}"],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip

    found = re.search(r'id="check">(.+?)<', done.stdout)
    assert found, done.stdout
    np.testing.assert_allclose(json.loads(found[1]), losses, rtol=1e-5)
