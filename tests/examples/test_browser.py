"""The page in Node and in Chromium trains with the losses of C on the same rows."""

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

from pockengine.examples.browser.make import BATCH, compile_page, pretrain, rows, write_page
from pockengine.examples.browser.serve import Isolated
from pockengine.models.cnn import SmallCNN

STEPS, RATE = 10, 0.02
needs_chromium = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="apt-get install chromium"
)
OBSERVER = b"""<script>
const [check, answer] = [document.getElementById("check"), document.getElementById("answer")];
const tell = () => fetch("/", { method: "POST", body: check.textContent || answer.textContent });
for (const place of [check, answer]) {
  new MutationObserver(tell).observe(place, { childList: true });
}
</script>"""
NODE = """
const fs = require("fs");
const { Session, readTensors } = require("./session.js");
const { trainRows } = require("./page.js");
const read = (name) => new Uint8Array(fs.readFileSync(name)).buffer;
const manifest = JSON.parse(fs.readFileSync("manifest.json"));
Session.open(read("digits.wasm"), manifest, read("weights.safetensors")).then(async (session) => {
  const rows = readTensors(read("rows.safetensors"));
  console.log(JSON.stringify(await trainRows(session, rows, 16, { steps: 10, lr: 0.02 })));
});
"""


@pytest.fixture(name="model", scope="module")
def untrained_model() -> SmallCNN:
    return pretrain(rows(), epochs=0)


@pytest.fixture(name="losses", scope="module")
def losses_of_c(model: SmallCNN) -> list[float]:
    data = rows()
    batches = [{name: array[i : i + BATCH] for name, array in data.items()}
               for i in range(0, STEPS * BATCH, BATCH)]  # fmt: skip
    with compile_page(model, data, "host").session() as session:
        losses = [float(session.train_step(batch, lr=RATE)["loss"]) for batch in batches]
    assert losses[-1] < losses[0]
    return losses


@pytest.fixture(name="page", scope="module")
def page_of_one_thread(model: SmallCNN, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_for("wasm32", model, tmp_path_factory.mktemp("page"))


@pytest.fixture(name="threaded", scope="module")
def page_of_several_threads(model: SmallCNN, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_for("wasm32-threads", model, tmp_path_factory.mktemp("page"))


def page_for(device: str, model: SmallCNN, folder: Path) -> Path:
    write_page(compile_page(model, rows(), device), rows(), folder)
    return folder


class Observed(Isolated):
    """A page that also sends its first answer to the server."""

    def __init__(self, *request: Any, answers: Queue[str], directory: str) -> None:
        self.answers = answers
        super().__init__(*request, directory=directory)

    def do_GET(self) -> None:
        if not self.path.startswith("/index.html"):
            super().do_GET()
            return
        text = (Path(self.directory) / "index.html").read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(text.replace(b"</body>", OBSERVER + b"</body>"))

    def do_POST(self) -> None:
        self.answers.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()


def shown_in_chromium(page: Path, profile: Path, query: str) -> str:
    """Open a page; return its first answer: losses of its rows, or an error."""
    answers: Queue[str] = Queue()
    handler = partial(Observed, answers=answers, directory=str(page))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/index.html?{query}"
        with subprocess.Popen(
            ["chromium", *options, address], stderr=subprocess.DEVNULL
        ) as browser:
            try:
                return answers.get(timeout=120)
            finally:
                browser.kill()
                server.shutdown()


def checked_in_chromium(page: Path, profile: Path, query: str) -> list[float]:
    return list(json.loads(shown_in_chromium(page, profile, query)))


@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs for WebAssembly")
def test_the_module_in_node_has_cs_losses(page: Path, losses: list[float]) -> None:
    done = subprocess.run(
        ["node", "-e", NODE], cwd=page, capture_output=True, text=True, check=True
    )

    np.testing.assert_allclose(json.loads(done.stdout), losses, rtol=1e-5)


@needs_chromium
def test_the_page_in_chromium_has_cs_losses(
    page: Path, losses: list[float], tmp_path: Path
) -> None:
    found = checked_in_chromium(page, tmp_path, f"check={STEPS}")

    np.testing.assert_allclose(found, losses, rtol=1e-5)


@needs_chromium
def test_threads_in_chromium_have_cs_losses(
    threaded: Path, losses: list[float], tmp_path: Path
) -> None:
    # In step 3 a ReLU has the other sign of an input near 0: threads add in another order.
    found = checked_in_chromium(threaded, tmp_path / "profile", "check=2&threads=3")

    np.testing.assert_allclose(found, losses[:2], rtol=1e-5)


@needs_chromium
@pytest.mark.parametrize("missing", ["trainer.js", "thread.js"])
def test_missing_workers_are_named(threaded: Path, missing: str, tmp_path: Path) -> None:
    page = Path(shutil.copytree(threaded, tmp_path / "page"))
    (page / missing).unlink()

    shown = shown_in_chromium(page, tmp_path / "profile", "check=1&threads=2")

    assert shown == f"{missing}: it cannot be loaded"
