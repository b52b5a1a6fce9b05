"""No pin's name or location is other than a line of text; a pin file answers as a mapping does."""

from __future__ import annotations

import copy
import os
from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors
from support.pin_law_samples import whole_file
from support.pin_samples import sample_entry

import registry
from registry.errors import NotFoundError, PinNotFoundError, UsageError, YankedVersionWarning
from registry.pins import PinFile
from registry.pins.compare import compare_pins
from registry.pins.create import check_locations, check_names

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture
def pins() -> PinFile:
    return PinFile.from_yaml(whole_file().encode(), "f")


def test_a_name_is_one_line_of_text() -> None:
    check_errors(
        GOLDEN / "pin_names" / "a_name_is_one_line_of_text.txt",
        (
            partial(lambda name: check_names(["train", name]), row)
            for row in ["", "a\nb", "a\x00", 5, None, "\ud800", "x" * 100_001]
        ),
    )


def test_a_location_is_one_line_of_text() -> None:
    check_errors(
        GOLDEN / "pin_names" / "a_location_is_one_line_of_text.txt",
        (
            partial(lambda location: check_locations(["https://example.org/a", location]), row)
            for row in ["", "https://x/\ny", "https://user:secret\n@x/y", Path("/x"), "/" + "x" * 1000]
        ),
    )


def test_a_text_is_refused_as_a_list_of_locations() -> None:
    with pytest.raises(UsageError) as caught:
        check_locations("https://example.org/a")
    assert caught.value.message == "locations: expected a list, found one text"
    assert caught.value.hint == 'Put it in brackets: locations=["https://..."]'


def test_membership_of_a_pin_file_agrees_with_get(pins: PinFile) -> None:
    (name, pin), *_ = pins.items()
    unique = [one.split for one in pins.values() if [other.split for other in pins.values()].count(one.split) == 1]
    for key in (name, *unique):
        assert key in pins
        assert pins.get(key) is pins[key]
    assert pins[name] is pin
    assert "trian" not in pins
    assert 5 not in pins
    assert pins.get("trian") is None
    assert pins.get("trian", pin) is pin


def test_a_pin_that_is_not_there_is_a_key_error_with_a_plain_message(pins: PinFile) -> None:
    with pytest.raises(KeyError) as caught:
        pins["trian"]
    assert isinstance(caught.value, PinNotFoundError)
    assert isinstance(caught.value, NotFoundError)
    assert str(caught.value) == "no pin 'trian' in the pin file"
    assert str(copy.copy(caught.value)) == str(caught.value)


def test_a_path_may_begin_with_the_home_folder(pins: PinFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pins.save("~/a.lock.yaml") == str(tmp_path / "a.lock.yaml")
    assert PinFile.load("~/a.lock.yaml") == pins
    with pytest.warns(YankedVersionWarning):
        found = registry.load_pin("~/a.lock.yaml")
    assert found == pins
    assert found.places.beside == os.fspath(tmp_path)


def test_files_are_compared_and_joined_by_names_alone() -> None:
    named = PinFile.of([sample_entry("train")], created_by="test")
    by_expression = PinFile.of([sample_entry("train[:80%]")], created_by="test")
    assert "train[:80%]" in named
    assert [(one.name, one.kind) for one in compare_pins(by_expression, named)] == [
        ("train[:80%]", "removed"),
        ("train", "added"),
    ]
    assert [*named.merged(by_expression)] == ["train", "train[:80%]"]
