"""Values that are wrong in a list or a number are one typed error, raised before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import registry
from registry.errors import UsageError, WrongTypeError


def test_the_items_of_lists_of_pins_are_checked(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        catalog.build("digits")
        pins = catalog.dataset("digits").pin("train[:10]")
        assert [state.state for state in catalog.pins.states(pins.values())] == ["canonical"]
        with pytest.raises(WrongTypeError, match="pins must contain Pin values, not str") as caught:
            catalog.pins.states(pins)  # type: ignore[arg-type] # the mistake
        assert caught.value.hint == "The pins of a file are its values: pin_file.values()."
        with pytest.raises(WrongTypeError, match="moves must contain PinMove values, not int"):
            catalog.pins.update(pins, [5])  # type: ignore[list-item] # the mistake


@pytest.mark.parametrize("call", ["build", "preview_build"])
def test_the_number_of_processes_is_checked_before_a_build(tmp_path: Path, call: str) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        with pytest.raises(UsageError, match="processes must be a whole number, not 'a'"):
            getattr(catalog, call)("digits", processes="a")
        assert not (tmp_path / "datasets").exists()


def test_an_argument_that_a_call_does_not_take_is_named_with_the_call(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        for name in ("publish", "build", "add", "describe"):
            with pytest.raises(TypeError, match=rf"^\w+\.{name}\(\) got an unexpected keyword argument 'place'$"):
                getattr(catalog, name)("digits", place=True)
        with pytest.raises(TypeError, match=r"^\w+\.publish\(\) missing a required argument: 'folder'$"):
            catalog.publish()  # type: ignore[call-arg] # the mistake
