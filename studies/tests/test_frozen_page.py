"""The page of frozen weights in fewer bits agrees with its records."""

from pathlib import Path

from pockengine.farm.results.results import Record
from pockengine.studies.frozen.page import page_of

RESULTS = Path(__file__).parents[1] / "results"


def test_the_page_is_that_of_its_records() -> None:
    lines = (RESULTS / "frozen-records.jsonl").read_text().splitlines()
    records = [Record.from_json(line) for line in lines]
    assert (RESULTS / "frozen.md").read_text() == page_of(records)


def test_accuracies_stand_beside_f32s() -> None:
    lines = (RESULTS / "frozen-records.jsonl").read_text().splitlines()
    records = [Record.from_json(line) for line in lines]
    accuracy = {
        record.dtype: record.value
        for record in records
        if (record.dataset, record.scheme, record.metric) == ("sst2", "lora-16", "accuracy")
    }
    points = 100 * (accuracy["int4"] - accuracy["f32"])
    (line,) = (
        line
        for line in page_of(records).split("## sst2, lora-16")[1].split("##")[0].splitlines()
        if line.startswith("| int4 |")
    )
    assert f"| {points:+.1f} |" in line
