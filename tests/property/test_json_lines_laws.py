"""The law of `registry read`: a line is the JSON of the example, byte for byte, whatever its features."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.feature_strategies import schemas_and_examples

from registry.cli.read import jsonable, line_writer
from registry.escaping import _STEERING, escape_json
from registry.features import FeaturesDict, codec_of

FLOATS = [0.0, -0.0, 0.1, 1e300, 5e-324, float("nan"), float("inf"), -float("inf")]
VALUES: list[Any] = [
    *(dtype(number) for dtype in (np.float16, np.float32, np.float64) for number in (*FLOATS[:3], *FLOATS[5:])),
    *FLOATS,
    *(np.iinfo(name).dtype.type(bound) for name in "bhilBHIL" for bound in (np.iinfo(name).min, np.iinfo(name).max)),
    np.longlong(7),
    np.array(FLOATS).reshape(2, 2, 2),
    *(np.array([0.1, float("nan")], dtype) for dtype in ("float32", "float16")),
    *(np.zeros(shape, dtype) for shape in ((), (0,), (2, 0), (0, 2), (1, 1, 3)) for dtype in ("uint8", "float32", "?")),
    np.array([2**64 - 1], np.uint64),
    np.array([[b"a", b"\xff"], [b"", "\u202e".encode()]], object),
    np.array(b"a", object),
    np.ma.MaskedArray([1, 2], [True, False]),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(6, dtype=">i4")[::2],
    b"\xff\x00",
    b'a"\\\n\x7f\x00',
    "text \u2028 \ud800",
    None,
    True,
    False,
    np.True_,
    2**70,
    [],
    {},
    [1, [b"a", None], {"a": [np.int8(1)]}],
    {'a"\n': {"\u00e9": b"\xc3\xa9"}, "": 1},
]


def write_slowly(value: Any, *, ensure_ascii: bool) -> str:
    return json.dumps(jsonable(value), ensure_ascii=ensure_ascii)


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_each_kind_of_value_is_written_as_its_json(ensure_ascii: bool) -> None:
    for value in VALUES:
        assert line_writer(ensure_ascii=ensure_ascii)(value) == write_slowly(value, ensure_ascii=ensure_ascii), value


@given(schemas_and_examples(), st.booleans())
def test_decoded_examples_are_written_as_their_json(given_: tuple[FeaturesDict, dict[str, Any]], ascii_: bool) -> None:
    features, example = given_
    decoded = codec_of(features).decode(codec_of(features).encode(example))
    assert line_writer(ensure_ascii=ascii_)(decoded) == write_slowly(decoded, ensure_ascii=ascii_)
    assert line_writer(ensure_ascii=ascii_)([decoded]) == write_slowly([decoded], ensure_ascii=ascii_)


@given(st.text(), st.text())
def test_what_is_escaped_for_a_terminal_does_not_depend_on_the_rest_of_the_line(text: str, other: str) -> None:
    steering = re.compile(f"[{_STEERING}]")
    line = json.dumps([text, other], ensure_ascii=False)
    assert escape_json(line) == "".join(escape_json(one) for one in line)
    assert not steering.search(escape_json(line))
    assert json.loads(escape_json(line)) == [text, other]


def test_an_image_takes_no_call_for_each_pixel() -> None:
    calls = [
        _calls_of(lambda size=size: line_writer(ensure_ascii=False)({"image": np.ones((size, size, 3), "u1")}))
        for size in (8, 64)
    ]  # type: ignore[misc]
    assert calls[0] == calls[1]


def _calls_of(function: Callable[[], object]) -> int:
    function()
    number = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number
