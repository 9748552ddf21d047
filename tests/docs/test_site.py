"""The documentation builds, has no broken link, and its reference is complete."""

import re
import subprocess
import sys
import tomllib
from html import unescape
from pathlib import Path

import pytest

import pockengine
from pockengine import errors
from pockengine.backends.native.package import HEADERS, HOSTED_HEADERS
from pockengine.backends.native.runtime_files import runtime_file
from pockengine.backends.rate_schedule import KINDS
from pockengine.cli.commands import ROWS
from pockengine.cli.rows import METRICS
from pockengine.compiler.ops import all_ops
from pockengine.compiler.optim import NAMED, Adafactor, Sgd
from pockengine.compiler.sparse.channels import CRITERIA
from pockengine.compiler.sparse.choice import TABLES, parse_choice
from pockengine.compiler.sparse.families import known_families
from pockengine.compiler.sparse.presets import PRESETS
from pockengine.devices import known_devices
from pockengine.docs.site.catalog_pages import CHOICES, states_of, value_text
from pockengine.docs.site.operator_pages import PAGES, OperatorPage, text_or_missing
from pockengine.frontends.losses import LOSSES

ROOT = Path(__file__).parents[2]
MOST_WORDS = 1500
REFERENCES = {"measured", "reference"}
RECORDS = "results"
"""A folder outside the site."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(site: Path, page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", (site / page / "index.html").read_text()))


def test_every_function_and_type_of_the_headers_is_listed(site: Path) -> None:
    page = (site / "reference" / "headers" / "index.html").read_text()
    ids = {name for one in re.findall(r'<h3 id="([^"]+)"', page) for name in one.split("-")}
    for header in (*HEADERS, *HOSTED_HEADERS):
        code = re.sub(r"/\*.*?\*/", "", runtime_file(header).read_text(), flags=re.DOTALL)
        functions = re.findall(r"^(?!return)\w[\w *]*\b(pe_\w+)\(", code, re.MULTILINE)
        types = re.findall(r"^} (\w+);", code, re.MULTILINE)
        assert [name for name in (*functions, *types) if name.lower() not in ids] == []
    headers = text_of(site, "reference/headers")
    assert "that a kill at any moment leaves the old file or the new one" in headers
    assert "pe_init_by(session, program, params" not in page  # the body of an inline function


def test_every_scheme_form_is_listed(site: Path) -> None:
    page = text_of(site, "reference/schemes")
    names = [*PRESETS, *(family.name for family in known_families()), *TABLES, *CRITERIA[1:]]
    assert [name for name in names if name not in page] == []
    assert {choice.kind for choice, _ in CHOICES} >= {row.kind for row in TABLES.values()}
    for choice, _ in CHOICES:
        assert parse_choice(tomllib.loads(f"x = {value_text(choice)}")["x"], "") == choice


def test_every_registry_entry_is_listed(site: Path) -> None:
    page = (site / "reference" / "training" / "index.html").read_text()
    assert [name for name in NAMED if f'<h3 id="{name}"' not in page] == []
    known = (*LOSSES, *METRICS, *KINDS, "betas: tuple[float, float] = (0.9, 0.999)")
    assert [name for name in known if name not in unescape(page)] == []
    ops = text_of(site, "reference/ops")
    assert [op.name for op in all_ops() if op.name not in ops.split()] == []
    devices = text_of(site, "reference/devices")
    assert [name for name in known_devices() if name not in devices] == []
    records = text_of(site, "reference/records")
    for word in ("guest_packets", "passed its correctness check", '"schema": 1'):
        assert word in records


def test_onnx_operators_are_listed(site: Path) -> None:
    rules = pytest.importorskip("pockengine.frontends.onnx.ops").RULES
    page = text_of(site, "reference/operators/onnx").replace(",", " ").replace(".", " ").split()
    assert [name for _, name in rules if name not in page] == []


def test_onnx_operators_train_if_a_gradient_exists() -> None:
    pytest.importorskip("pockengine.frontends.onnx.ops")
    rows = re.findall(r"\| `(\w+)` \| (yes|no) \|", text_or_missing("onnx"))
    trains = {name for name, answer in rows if answer == "yes"}
    differentiable = {"Conv", "ConvTranspose", "Dropout", "Gather", "LSTM", "Relu", "TopK", "Where"}
    assert differentiable <= trains
    assert not trains & {"ArgMax", "Equal", "Hardmax", "OneHot", "RandomNormal", "Shape", "Size"}


def test_a_page_of_operators_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    page = OperatorPage("Some operators", "operators", ("no_frontend.ops:RULES",))
    monkeypatch.setitem(PAGES, "some", page)
    assert "`pockengine.frontends.no_frontend` was not installed" in text_or_missing("some")


def test_listed_states_equal_the_optimizers_states() -> None:
    assert states_of(Sgd(momentum=0.9)) == {"velocity": (6, 4)}
    assert states_of(Adafactor()) == {"rows": (6, 1), "columns": (1, 4)}


def test_every_public_name_has_its_section(site: Path) -> None:
    page = (site / "reference" / "python" / "index.html").read_text()
    missing = [name for name in pockengine._PLACES if f'id="{name.lower()}"' not in page]
    assert missing == []
    assert "cross_entropy" in page
    assert 'id="compiledfit"' in page  # inherited from a private base


def test_every_error_is_listed(site: Path) -> None:
    page = text_of(site, "reference/errors")
    assert [name for name in vars(errors) if name.endswith("Error") and name not in page] == []


def test_every_command_is_listed_with_its_options(site: Path) -> None:
    page = text_of(site, "reference/commands")
    assert [name for name in ROWS if f"pockengine {name}" not in page] == []
    for option in ("--memory-budget", "--checkpoint", "--frozen-weights", "--baseline"):
        assert option in page
    runner = (site / "runner" / "index.html").read_text()
    assert '<code class="short">--keep N</code>' in runner  # on one line


def test_search_finds_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    assert "Keep a memory budget" in index


def test_pages_are_short() -> None:
    long = {
        str(page.relative_to(ROOT / "docs")): words
        for page in (ROOT / "docs").rglob("*.md")
        if page.relative_to(ROOT / "docs").parts[0].removesuffix(".md")
        not in {*REFERENCES, RECORDS}
        and (words := len(page.read_text().split())) > MOST_WORDS
    }
    assert long == {}
