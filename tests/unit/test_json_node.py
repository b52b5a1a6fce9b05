"""A document that is nested too deeply, or is not valid text, is refused with the path of the value."""

from __future__ import annotations

import pytest

from registry.errors import PreparedFormatError
from registry.json_node import parse_json


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[" * 102 + "]" * 102, "[0]" * 101),
        ('{"a":' * 101 + "1" + "}" * 101, ".".join("a" * 101)),
        ('{"a":[[{"b":"\\ud800"}]]}', "a[0][0].b"),
        ('{"a":"\\ud83d\\ude00","b":["\u00e9",{"c":"\ud800"}]}', "b[1].c"),
        ('{"a":{"\\udc00":1}}', "a.\udc00"),
    ],
)
def test_the_path_of_the_first_fault_is_named(text: str, path: str) -> None:
    with pytest.raises(PreparedFormatError) as error:
        parse_json(text, "file.json")
    assert error.value.details["key"] == path


@pytest.mark.parametrize("text", ["[" * 101 + "]" * 101, '{"a":' * 100 + "1" + "}" * 100, '["\\ud83d\\ude00"]', "5"])
def test_depth_and_pairs_within_the_bounds_are_accepted(text: str) -> None:
    assert parse_json(text, "file.json").path == ""
