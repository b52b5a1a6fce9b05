"""The values that may be keys, and the errors for others."""

from __future__ import annotations

import numpy as np
import pytest

from registry.building.keys import hash_key, label_of, number_key, plain_key
from registry.errors import BuildError


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        ("a", "a"),
        (7, 7),
        (b"a", b"a"),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (np.array(7), 7),
        (np.array([[7]]), 7),
        (np.array(["a"]), "a"),
    ],
)
def test_numpy_values_make_the_same_keys_as_plain_ones(key: object, plain: object) -> None:
    assert plain_key(key) == plain
    assert type(plain_key(key)) is type(plain)


@pytest.mark.parametrize("key", [None, 1.5, (1,), np.float32(1), np.array([1, 2]), np.array([]), np.array([1.5]), {}])
def test_other_values_are_refused(key: object) -> None:
    with pytest.raises(BuildError, match=r"^invalid key .*: expected text, a whole number or bytes, found "):
        plain_key(key)


@pytest.mark.parametrize("key", [True, np.True_, np.array([False])])
def test_a_bool_is_ambiguous(key: object) -> None:
    with pytest.raises(BuildError, match="a bool is ambiguous: it could mean 1 or 'True'"):
        plain_key(key)


def test_a_backslash_counts_as_a_slash_in_text_and_as_itself_in_bytes() -> None:
    assert hash_key("train", "a\\b") == hash_key("train", "a/b")
    assert hash_key("train", rb"a\b") != hash_key("train", b"a/b")


def test_the_split_salts_the_hash() -> None:
    assert hash_key("train", 1) != hash_key("test", 1)


def test_text_that_utf8_cannot_hold_is_refused() -> None:
    with pytest.raises(BuildError) as caught:
        hash_key("train", "photo\udcff.png")
    assert str(caught.value) == r"invalid key 'photo\udcff.png': it cannot be encoded as UTF-8"
    assert caught.value.hint == "Use the name as bytes: os.fsencode(name)"


def test_a_number_too_long_to_print_is_refused_without_printing_it() -> None:
    with pytest.raises(BuildError, match="invalid key <a number of 100001 bits>"):
        hash_key("train", 1 << 100_000)


def test_a_number_that_does_not_fit_the_order_is_refused() -> None:
    with pytest.raises(BuildError, match=r"without shuffling, a number must be in -2\*\*127\.\.2\*\*127-1"):
        number_key(1 << 127)


def test_long_keys_are_cut_in_the_middle() -> None:
    label = label_of("a" * 100 + "b" * 100)
    assert len(label) == 120
    assert label.startswith("'aaa")
    assert label.endswith("bbb'")
    assert "a…b" in label
