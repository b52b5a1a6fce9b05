"""The options of an addition: one list of names for the call of Python, the command line and type checkers."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from click import Option

import registry
from registry.api.adding import Adding
from registry.cli.add import add
from registry.intake.options import AddArguments, AddOptions

OWN = {"remove_tags", "remembered", "remembered_columns", "has_csv_options"}
NAMES = [one.name for one in fields(AddOptions) if one.name not in OWN]


def test_the_arguments_for_type_checkers_are_the_fields() -> None:
    types = {one.name: str(one.type) for one in fields(AddOptions)}
    assert list(AddArguments.__annotations__) == NAMES
    assert {name: types[name] for name in NAMES} == {
        name: one.__forward_arg__ for name, one in AddArguments.__annotations__.items()
    }


@pytest.mark.parametrize("call", [registry.add, Adding.add, Adding.plan_add])
def test_help_names_every_argument(call: object) -> None:
    parameters = inspect.signature(call).parameters  # type: ignore[arg-type]
    assert set(NAMES) <= set(parameters)
    assert "options" not in parameters
    assert parameters["skip_bad"].default == 0
    assert parameters["features"].default is None


def test_the_command_line_has_an_option_for_every_argument() -> None:
    options = {one.name for one in add.params if isinstance(one, Option)}
    assert set(NAMES) <= options


def test_an_argument_that_does_not_exist_is_an_error_of_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'keys'"):
        registry.add([{"a": 1}], "x", keys="a")  # type: ignore[call-arg]


def test_malformed_options_of_the_previous_version_are_ignored() -> None:
    malformed = {"kind": 5, "nulls": [{}], "splits": {"train": 1}, "rename_columns": {"a": ["b"]}, "header": "no"}
    result = AddOptions().with_remembered({"options": malformed | {"holdout": "test=10%"}})
    assert result.describe() == {"holdout": "test=10%"}
    assert result.remembered == {"holdout"}
