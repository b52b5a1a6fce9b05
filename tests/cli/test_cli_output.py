"""The presenter: one value is printed for people, or as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_texts

from registry.cli.output import Block, Fields, JsonText, Note, Output, Table
from registry.envelope import Records, error_envelope, result_envelope
from registry.model import Reference, Version, VersionStatus

MOMENT = datetime(2026, 11, 21, 9, 5, tzinfo=UTC)
VALUE = {
    "reference": Reference.parse("mnist/plain:3.0.1"),
    "status": VersionStatus.CANONICAL,
    "at": MOMENT,
    "url": "s3://ann:hunter2@bucket/data",
    "splits": ({"name": "train", "num_examples": 60000}, {"name": "test", "num_examples": 10000}),
    "superseded_by": None,
}

GOLDEN = Path(__file__).parent / "golden" / "cli_output"


def describe(value: dict[str, Any]) -> Iterator[Block]:
    yield f"{value['reference']} in {value['url']}"
    yield Fields({"status": value["status"], "published": value["at"], "superseded by": value["superseded_by"]})
    yield Table(
        value["splits"], {"SPLIT": "name", "EXAMPLES": "num_examples", "HALF": lambda one: one["num_examples"] / 2}
    )
    yield Table(value["splits"], {"SPLIT": "name"}, limit=1)
    yield Table((), {"SPLIT": "name"}, empty="There are no splits.")
    yield Note("told to people")
    yield JsonText.line({"a": "b"})


def test_people_see_lines_fields_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=False)
    out.tell(["before"])
    out.present("law", VALUE, describe)
    captured = capsys.readouterr()
    check_texts(GOLDEN / "people_see_lines_fields_and_tables.txt", [captured.out])
    assert captured.err == "There are no splits.\ntold to people\n"


def test_programs_get_the_same_value_and_no_human_form(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(as_json=True)
    out.tell(["before"])
    out.note("note: beware of http://ann:hunter2@host")
    out.present("law", VALUE, describe)
    captured = capsys.readouterr()
    check_texts(GOLDEN / "programs_get_the_same_value_and_no_human_form.txt", [captured.out])
    assert captured.err == ""


def test_records_of_a_dataset_are_not_masked() -> None:
    records = ({"text": text} for text in ("http://ann:pw@host", "b"))
    data = result_envelope("read", {"examples": Records(records), "text": "http://ann:pw@host"}, [])["data"]
    assert data == {"examples": [{"text": "http://ann:pw@host"}, {"text": "b"}], "text": "http://***@host"}


def test_an_error_is_one_json_object() -> None:
    details = {"version": Version(1, 0, 0), "known": {"http://ann:pw@host"}}
    assert error_envelope("not_found", "no http://ann:pw@host", None, details) == {
        "error": {
            "code": "not_found",
            "message": "no http://***@host",
            "hint": None,
            "details": {"version": "1.0.0", "known": ["http://***@host"]},
        }
    }
