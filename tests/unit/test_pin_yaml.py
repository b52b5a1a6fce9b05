"""A pin file is read as every YAML reader reads it, or refused; written files are read back, by others too."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.golden import check_errors

from registry.errors import PinFormatError
from registry.pins import yaml_text
from registry.pins.yaml_text import MAX_BYTES, MAX_DEPTH, is_ambiguous, join_key, read_yaml, write_yaml


def refuse(text: str | bytes) -> None:
    read_yaml(text.encode() if isinstance(text, str) else text, "f")


def refusal(text: str | bytes) -> PinFormatError:
    with pytest.raises(PinFormatError) as caught:
        refuse(text)
    return caught.value


def ambiguous(place: str, text: str) -> tuple[str, str]:
    return f"f: {place}: YAML parsers disagree about the type of {text}", f'For a text, write "{text}"'


SURPRISES = (
    *("no", "yes", "on", "off", "No", "YES", "y", "N", "True", "FALSE", "Null", "NULL", "~", "=", "<<"),
    *("010", "0x1F", "0X1f", "0o17", "0b101", "-0x1F", "1_000", "+1", "-0", "00"),
    *("1e3", "1.", ".5", "1.0E3", "1.0e3", "+1.0", "1.0e+400", "-1.0e+999"),
    *(".inf", "-.INF", ".nan", ".NaN", "inf", "nan"),
    *("190:20:30", "12:30", "2026-11-21", "2026-11-21T10:00:00Z", "2026-11-21 10:00:00", "1.0.0", "9" * 101),
)  # fmt: skip


@pytest.mark.parametrize("text", SURPRISES)
def test_a_scalar_about_which_readers_disagree_is_refused_with_its_place(text: str) -> None:
    error = refusal(f"a:\n  - b\n  - c: {text}\n")
    assert (error.message, error.hint) == ambiguous("line 3, a[1].c", text[:60])
    assert error.details["faults"] == [
        {"key": "a[1].c", "line": 3, "problem": f"YAML parsers disagree about the type of {text[:60]}"}
    ]


@pytest.mark.parametrize("text", SURPRISES)
def test_in_quotes_it_is_a_text(text: str) -> None:
    for quote in "'\"":
        assert read_yaml(f"a: {quote}{text}{quote}\n".encode(), "f").value == {"a": text}
        assert read_yaml(f"{quote}{text}{quote}: 1\n".encode(), "f").value == {text: 1}


@pytest.mark.parametrize("text", [text for text in SURPRISES if text not in ("=", "<<")])
def test_a_scalar_about_which_readers_disagree_is_refused_as_a_key(text: str) -> None:
    error = refusal(f"a:\n  {text}: 1\n")
    assert error.message == ambiguous("line 2, a", text[:60])[0]


PLAIN = {
    "true": True,
    "false": False,
    "null": None,
    "": None,
    "0": 0,
    "-7": -7,
    "18446744073709551615": 2**64 - 1,
    "9" * 100: int("9" * 100),
    "0.5": 0.5,
    "-1.25e-07": -1.25e-07,
    "1.0e+16": 1e16,
    "a": "a",
    "digits:1.*.*": "digits:1.*.*",
    "train[:80%]": "train[:80%]",
    "sha256:00": "sha256:00",
    "nothing": "nothing",
    "-": None,
}


@pytest.mark.parametrize("text", [text for text in PLAIN if text != "-"])
def test_what_readers_agree_about_is_read(text: str) -> None:
    found = read_yaml(f"a: {text}\n".encode(), "f").value
    assert repr(found) == repr({"a": PLAIN[text]}) == repr(yaml.safe_load(f"a: {text}\n"))


WRONG: list[str | bytes] = [
    # A key that is given twice, however it is spelled.
    *("a: 1\na: 1\n", "a: 1\n'a': 1\n", 'b: {x: 1, z: 2}\na:\n  - c: 1\n    d: 2\n    "c": 3\n'),
    *("a: {x: 1, x: 1}\n", 'a: 1\n"\\x61": 1\n', "'a b': 1\na b: 1\n"),
    # Tags.
    *("a: !!python/object/apply:os.system ['true']", "a: !!binary aGVsbG8=", "a: !!set {b: null}", "a: !foo 1"),
    *("a: !foo {b: 1}", "a: !!str 1", "a: !!int '5'", "a: !!map {b: 1}", "a: !!seq [1]", "a: ! 1"),
    *("a: !<tag:example.org,2026:x> 1", "a: [b, !!omap []]"),
    # Keys that are not text.
    *("a:\n  1: b\n", "a:\n  1.5: b\n", "null: b\n", "? \n: b\n", "true: b\n", "? [a, b]\n: c\n"),
    *("x: {{a: 1}: 2}\n", "!!str a: 1\n", "x: &k a\n*k : 1\n", f"x:\n  ? {'k' * 1001}\n  : 1\n"),
    # References to another place, which are not followed, and a merge key.
    *("a: &x [1]\nb: *x\n", "a: &x 1\nb: [2, *x]\n", "a: &x\n  b: *x\n", "a: &x {b: 1}\nc:\n  <<: *x\n"),
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\n",
    # Files that are not one mapping.
    *(b"", b"# nothing\n", b"---\n", b"- a: 1\n", b"text\n", b"a: 1\n---\na: 1\n", b"a: 1\n...\n---\n"),
    *(b"a: \xff\n", "a: b\n".encode("utf-16"), b"a: \xed\xa0\x80\n", b"a: 1\nb: x\0y\n", b'a: 1\nb: "x\\0y"\n'),
    *(b'a: 1\nb: "\\ud800"\n', b"a:\n\tb: 1\n", b"a: [1\n", b"a: 'b\n", b"a: b: c\n", b"a: 1\n b: 2\n", b"a: *x\n"),
    *(b"%YAML 3.0\n---\na: 1\n", "a: 1\nb: x\u2028y\n", "a: 'x\u0085y'\n"),
]


def test_what_readers_take_differently_or_not_at_all_is_refused_with_its_place() -> None:
    calls = {ascii(text)[:99]: partial(refuse, text) for text in WRONG}
    check_errors(Path(__file__).with_name("golden") / "pin_yaml.txt", calls)


def test_a_file_that_is_too_long_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_BYTES == 64 * 2**20
    monkeypatch.setattr(yaml_text, "MAX_BYTES", 10)
    assert read_yaml(b"a: 6789012", "f").value == {"a": 6789012}
    assert refusal(b"\xff: 67890123").message == "f: it is longer than 10 bytes"


DEEP = {
    "flow lists": ("a: " + "[" * 1_000_000, "a" + "[0]" * 49),
    "flow maps": ("a: " + "{b: " * 200_000, "a" + ".b" * 49),
    "block lists": ("a:\n  " + "- " * 200_000 + "x\n", "a" + "[0]" * 49),
    "block maps": ("".join(" " * level + "a:\n" for level in range(2000)), ".".join(["a"] * 50)),
    "pairs of a list": ("a: " + "[b: " * 100_000, "a" + "[0].b" * 24 + "[0]"),
}


@pytest.mark.parametrize("kind", DEEP)
def test_what_is_nested_too_deep_is_refused_and_ends_no_process(kind: str) -> None:
    text, path = DEEP[kind]
    error = refusal(text)
    (fault,) = error.details["faults"]
    assert fault["key"] == path or (kind == "flow lists" and fault["key"] == "")  # PyYAML 6.0.4 refuses the whole line
    assert fault["problem"] == "nested more than 50 levels deep"


def test_fifty_levels_are_read_and_brackets_in_texts_do_not_count() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = {"a": value}
    assert read_yaml(write_yaml(value).encode(), "f").value == value
    refusal(write_yaml({"a": value}))
    brackets = {"citation": "{[" * 10_000, "more": "a\n" + "- " * 1000 + "\nb"}
    assert read_yaml(write_yaml(brackets).encode(), "f").value == brackets


def test_a_deeply_nested_reference_is_refused_with_its_position() -> None:
    error = refusal("a: &x [1]\nb:\n  c:\n    - d: *x\n")
    assert error.details["faults"][0]["key"] == "b.c[0].d"


@pytest.mark.parametrize("head", ["\ufeff", "%YAML 1.1\n---\n", "---\n", "# a comment\n\n", "%YAML 1.2\n---\n"])
def test_directives_and_comments_without_effect_are_accepted(head: str) -> None:
    assert read_yaml(f"{head}a: 1 # one\nb: [x, 'y']\n".encode(), "f").value == {"a": 1, "b": ["x", "y"]}


def test_lines_that_end_with_carriage_returns_are_harmless() -> None:
    value = {"a": {"b": ["one\ntwo\n", "three"]}, "c": "x\n\n  y", "d": "with\r\nreturn"}
    text = write_yaml(value, comment="one\ntwo")
    read = read_yaml(text.replace("\n", "\r\n").encode(), "f")
    assert read.value == value
    assert read.lines == read_yaml(text.encode(), "f").lines


def test_the_line_of_a_value_is_the_line_of_its_key_or_dash() -> None:
    read = read_yaml(b"# head\na:\n  - b: |\n      x\n    c: [1,\n       2]\n'd e': {f: 1}\n", "f")
    assert read.lines == {
        "": 2,
        "a": 2,
        "a[0]": 3,
        "a[0].b": 3,
        "a[0].c": 5,
        "a[0].c[0]": 5,
        "a[0].c[1]": 6,
        '["d e"]': 7,
        '["d e"].f': 7,
    }


def test_no_two_places_have_one_key_path() -> None:
    keys = ["a", 'a"]["b', "a.b", "[0]", "a[0]", "", '"', "\\", '\\"', "a\nb", "é"]
    paths = [join_key(path, key) for path in ("", "a", "a.b", 'a["a"]') for key in [*keys, 0, 1]]
    assert len({*paths}) == len(paths)
    assert join_key("x", 'a"b\n') == 'x["a\\"b\\n"]'


# Written

ODD = st.sampled_from(
    ["\r", "\x85", "\u2028", "\u2029", "\t", "\n", " ", "\ufeff", "\x7f", "\x9f", "\ufffe", "\U0010ffff"]
)
MEANT = st.sampled_from(
    ["😀", "é", "#", ": ", "- ", "---", "...", "'", '"', "|", ">", "!x", "&x", "*x", "{", "]", "%", "@", "`", "\\"]
)
PIECES = (
    ODD
    | MEANT
    | st.sampled_from([*SURPRISES, *PLAIN])
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0")
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
LONG = st.builds(lambda text, number: text * number, st.text("a b\n", min_size=1, max_size=9), st.integers(1, 400))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | LONG
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))
DOCUMENTS = st.dictionaries(TEXTS | st.text("ab", min_size=120, max_size=200), VALUES, max_size=5)


@given(value=DOCUMENTS)
def test_what_is_written_is_read_back_and_written_the_same(value: dict[str, Any]) -> None:
    text = write_yaml(value, comment="dataset.lock.yaml")
    read = read_yaml(text.encode(), "f").value
    assert repr(read) == repr(value)
    assert write_yaml(read, comment="dataset.lock.yaml") == text


@given(value=DOCUMENTS)
def test_other_readers_of_yaml_take_the_text_for_the_same_values(value: dict[str, Any]) -> None:
    text = write_yaml(value)
    assert repr(yaml.load(text, Loader=yaml.SafeLoader)) == repr(value)
    assert repr(yaml.load(text, Loader=yaml.CSafeLoader)) == repr(value)


@given(value=DOCUMENTS)
def test_written_lines_contain_no_ambiguous_line_ends_and_no_trailing_blanks(value: dict[str, Any]) -> None:
    lines = write_yaml(value).split("\n")
    assert not any(character in line for line in lines for character in "\r\x85\u2028\u2029\t")
    assert not any(line.endswith(" ") for line in lines)


@given(text=TEXTS)
def test_a_text_written_without_quotes_is_a_string_in_yaml_1_2(text: str) -> None:
    for event in yaml.parse(write_yaml({"key": [text]})):
        if isinstance(event, yaml.ScalarEvent) and event.style is None:
            assert not CORE_SCHEMA.fullmatch(event.value)
            assert not is_ambiguous(event.value)


CORE_SCHEMA = yaml_text.re.compile(
    r"|null|Null|NULL|~|true|True|TRUE|false|False|FALSE|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"
)


def test_the_written_form_of_each_kind_of_value() -> None:
    value = {
        "text": "a b",
        "version": "1.0.0",
        "no": "no",
        "empty": "",
        "blanks": " a ",
        "lines": "a\n  b\n",
        "no newline": "a\nb",
        "break": "a\u2028b",
        "blank at an end": "a \nb",
        "odd beginning": "\na",
        "none": None,
        "numbers": [0, -1, 1.5, 1e22],
        "nothing": {"list": [], "map": {}},
        "maps": [{"a": 1, "b": 2}],
    }
    assert write_yaml(value, comment="One\n\ntwo") == (
        "# One\n#\n# two\n"
        "text: a b\n"
        'version: "1.0.0"\n'
        '"no": "no"\n'
        'empty: ""\n'
        'blanks: " a "\n'
        "lines: |\n  a\n    b\n"
        "no newline: |-\n  a\n  b\n"
        'break: "a\\u2028b"\n'
        'blank at an end: "a \\nb"\n'
        'odd beginning: "\\na"\n'
        "none: null\n"
        "numbers:\n  - 0\n  - -1\n  - 1.5\n  - 1.0e+22\n"
        "nothing:\n  list: []\n  map: {}\n"
        "maps:\n  - a: 1\n    b: 2\n"
    )
    assert math.isclose(read_yaml(write_yaml(value).encode(), "f").value["numbers"][3], 1e22)
