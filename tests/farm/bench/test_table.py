import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from pockengine.farm.bench.peers import what_is_missing
from pockengine.farm.bench.preview import first_lines, seconds
from pockengine.farm.bench.result import BenchOptions
from pockengine.farm.bench.table import bench_table, meaning_of
from pockengine.farm.boards.board import board_for, load_boards
from pockengine.farm.results.commits import current_commit
from pockengine.farm.results.results import Record
from pockengine.farm.results.setup import EngineRun, Setup, finite_or_large

BOARD = Setup("net", "photos", 4, 2, "rpi4", "rpi4-qemu", emulated=True, commit="abc")
FULL = EngineRun("pockengine", "1", "full")


def figures(scheme: str, engine: str, instructions: float, ok: bool = True) -> list[Record]:
    return [
        BOARD.record(EngineRun(engine, "1", scheme), "guest_instructions", instructions),
        BOARD.record(EngineRun(engine, "1", scheme), "max_rel_error", 1e-6, ok=ok),
    ]


def lines(records: Sequence[Record]) -> dict[tuple[str, str], list[str]]:
    """Render the table and return each row's cells, by scheme and engine."""
    console = Console(file=io.StringIO(), width=200)
    console.print(bench_table(records))
    assert isinstance(console.file, io.StringIO)
    rows = {}
    for line in console.file.getvalue().splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            rows[cells[0], cells[1]] = cells[2:]
    return rows


def test_ratio_is_to_the_faster_tensorflow_mode_of_the_same_scheme() -> None:
    rows = lines(
        [
            *figures("full", "pockengine", 50e6),
            *figures("full", "tf-eager", 200e6),
            *figures("full", "tf-graph", 150e6),
            *figures("sparse", "pockengine", 25e6),
        ]
    )

    assert rows["full", "pockengine"][:2] == ["50.0 M", "3.00"]
    assert rows["full", "tf-graph"][:2] == ["150.0 M", "1.00"]
    assert rows["sparse", "pockengine"][:2] == ["25.0 M", "-"]


def test_significant_spread_has_a_column() -> None:
    record = BOARD.record(FULL, "guest_instructions", 2e6, spread=(1e6, 3e6, 9))
    assert lines([record])["full", "pockengine"][:3] == ["2.0 M", "1.0 to 3.0", "-"]


def test_summary_states_the_savings_of_the_cheapest_scheme() -> None:
    full, sparse = figures("full", "pockengine", 50e6), figures("sparse", "pockengine", 20e6)
    assert meaning_of([*full, *figures("full", "tf-graph", 1e6)]) is None
    assert meaning_of([*full, *sparse]) == (
        "A step of sparse takes 0.40 of full training's instructions."
    )
    arenas = [
        BOARD.record(EngineRun("pockengine", "1", scheme), "arena_bytes", size)
        for scheme, size in (("full", 400), ("sparse", 100))
    ]
    beside = meaning_of([*full, *sparse, *figures("full", "tf-graph", 150e6)])
    assert (beside or "").endswith("; TensorFlow's full training takes 3.00 times ours.")
    assert (meaning_of([*full, *sparse, *arenas]) or "").endswith(", in 0.25 of its arena.")


def test_int8_is_listed_beside_f32() -> None:
    floats = figures("sparse", "pockengine", 2e6)
    integers = [replace(x, dtype="int8") for x in figures("sparse", "pockengine", 1e6)]
    rows = lines([*floats, *integers])
    assert rows["sparse", "pockengine f32"][0] == "2.0 M"
    assert rows["sparse", "pockengine int8"][0] == "1.0 M"


def test_rows_of_a_scheme_stay_together_in_the_order_of_the_schemes() -> None:
    records = [*figures("b", "pockengine", 1), *figures("a", "pockengine", 1)]
    records += figures("b", "tf-graph", 1)

    assert list(lines(records)) == [("b", "pockengine"), ("b", "tf-graph"), ("a", "pockengine")]


def test_failed_checks_have_no_speed() -> None:
    rows = lines([BOARD.record(FULL, "max_rel_error", 0.5, ok=False)])

    assert rows["full", "pockengine"][:2] == ["-", "-"]
    assert rows["full", "pockengine"][-1] == "5.0e-01 FAILED"


def test_sizes_are_in_binary_units() -> None:
    records = [
        BOARD.record(FULL, "arena_bytes", 3 * 2**20),
        BOARD.record(FULL, "binary_bytes", 1536),
    ]

    cells = lines(records)["full", "pockengine"]
    assert (cells[2], cells[4]) == ("3.00 MiB", "1.5 KiB")


def test_instructions_are_for_one_thread_and_bytes_for_the_board() -> None:
    assert BOARD.record(FULL, "guest_instructions", 1).threads == 1
    assert BOARD.record(FULL, "arena_bytes", 1).threads == 2


def test_nan_errors_are_stored_as_huge_numbers() -> None:
    assert finite_or_large(float("nan")) == finite_or_large(float("inf")) == 1e30
    assert finite_or_large(0.5) == 0.5


@pytest.mark.parametrize(
    ("without", "missing", "message"),
    [
        (["full", "sparse"], [], "No aarch64 TensorFlow beside full, sparse: run with --reference"),
        ([], ["tf-graph"], "Not installed, so not compared: tf-graph"),
    ],
)
def test_note_on_a_missing_reference_has_a_fix(
    without: list[str], missing: list[str], message: str
) -> None:
    assert (what_is_missing(without, missing) or "").startswith(message)


def test_nothing_is_printed_if_nothing_is_missing() -> None:
    assert what_is_missing([], []) is None


def test_commit_is_never_empty() -> None:
    assert current_commit()


def test_modelled_milliseconds_have_a_column() -> None:
    ours = figures("full", "pockengine", 50e6)
    modelled = replace(BOARD, busy="busy").record(FULL, "modelled_ms", 12.5, note="modelled")
    assert modelled.note == "modelled"  # modelled figures do not depend on a machine's load

    rows = lines([*ours, modelled, *figures("full", "tf-graph", 150e6)])

    assert rows["full", "pockengine"][:3] == ["50.0 M", "12.5 ms", "3.00"]
    assert rows["full", "tf-graph"][1] == "-"


def test_first_lines_describe_the_run_and_its_duration() -> None:
    board = board_for("rpi4", load_boards())
    options = BenchOptions(board, "cnn-28", ("full", "bias-only"), 10, 4, 1)
    with_reference = replace(options, references=("tensorflow",))

    what, how = first_lines(options)

    assert what == "cnn-28, batch 4, on rpi4-qemu (emulated): full, bias-only."
    assert "trains 10 steps there, is compared with PyTorch, and then counts its instruc" in how
    assert seconds(with_reference, 2) > seconds(options, 2) + 60
