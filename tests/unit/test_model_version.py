"""Version numbers in builder code: three numbers or one text, with the flags that TFDS allows."""

from __future__ import annotations

import copy
import enum
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.golden import check_errors

from registry.errors import ExperimentNotFoundError, ReferenceSyntaxError, UsageError
from registry.model import Version

GOLDEN = Path(__file__).with_name("golden")


class Flags(enum.Enum):
    NEW_SHUFFLE = 1
    OLD_ORDER = enum.auto()


def test_a_version_is_written_as_numbers_or_as_one_text() -> None:
    assert Version("3.0.1") == Version(3, 0, 1) == Version.parse("3.0.1") == Version(Version(3, 0, 1))
    assert Version(major=3, minor=0, patch=1).parts == (3, 0, 1)
    match Version("3.0.1"):
        case Version(major, minor, patch):
            assert (major, minor, patch) == (3, 0, 1)


def test_a_value_that_is_not_a_version_is_refused() -> None:
    check_errors(
        GOLDEN / "model_version" / "a_value_that_is_not_a_version_is_refused.txt",
        (
            partial(Version, *arguments)
            for arguments in [
                ("3.0",),
                (3,),
                (3, 0),
                (None,),
                (1.0, 0, 0),
                ("3", "0", "1"),
                (True, 0, 0),
                (b"3.0.1",),
                (-1, 0, 0),
                (0, 0, 2**31),
                ("3.0.1", "Encoding fix."),
                ("3.0.1", {"flag": True}),
            ]
        ),
    )


def test_builder_code_compares_versions_with_text() -> None:
    version = Version("1.10.0")
    assert version == "1.10.0"
    assert version != "1.10"
    assert version != "latest"
    assert version != None  # noqa: E711 (authors write it)
    assert version != (1, 10, 0)
    assert "1.9.0" < version  # noqa: SIM300 (the other way round is asked, too)
    assert version >= "1.9.0"
    assert version <= "1.10.0"
    assert version < Version("2.0.0")
    assert not version > "1.10.0"
    assert {version: "x"}["1.10.0"] == "x"
    assert max([Version("1.9.9"), version, Version("0.0.1")]) is version


@pytest.mark.parametrize("text", ["1.10", "latest", "1.*.*", "", " 1.10.0", "1.10.0\n", "9" * 5000])
def test_a_text_that_is_not_a_version_is_unequal_and_cannot_be_ordered(text: str) -> None:
    version = Version(1, 10, 0)
    assert version != text
    for compare in (version.__lt__, version.__le__, version.__gt__, version.__ge__):
        with pytest.raises(ReferenceSyntaxError) as caught:
            compare(text)
        assert caught.value.message == f"invalid version {text[:60]!r}"


@pytest.mark.parametrize("other", [None, 1, 1.1, (1, 10, 0), object()])
def test_a_version_cannot_be_ordered_with_other_values(other: Any) -> None:
    with pytest.raises(TypeError, match="not supported between instances"):
        assert Version(1, 10, 0) < other


def test_a_text_is_a_valid_version_or_not() -> None:
    assert Version.is_valid("1.2.3")
    for text in ("1.2.*", "1.2", "01.2.3", "v1.2.3", "", "1.2.3\n", "١.2.3", f"{2**31}.0.0", None, 1, 1.0, b"1.2.3"):
        assert not Version.is_valid(text)


def test_a_version_matches_the_patterns_of_requests() -> None:
    version = Version("3.0.1")
    assert all(version.match(pattern) for pattern in ("3.0.1", "3.*.*", "*.*.*", "*.0.1", "3", "3.*", "^3", ">=3,<4"))
    assert not any(version.match(pattern) for pattern in ("2.*.*", "30.*.*", "3.1", "3.*.2"))
    with pytest.raises(ReferenceSyntaxError, match=r"^invalid version request '3\.0\.1\.0'(?m:$)"):
        version.match("3.0.1.0")


def test_flags_of_a_version_are_neither_compared_nor_hashed() -> None:
    plain, flagged = Version("1.0.0"), Version("1.0.0", experiments={"flag": True}, version_to_prepare="0.9.0")
    assert plain == flagged
    assert hash(plain) == hash(flagged)
    assert len({plain, flagged, "1.0.0"}) == 1
    assert not plain < flagged
    assert plain <= flagged
    assert str(flagged) == "1.0.0"
    assert repr(plain) == "Version(major=1, minor=0, patch=0)"
    assert repr(flagged) == (
        "Version(major=1, minor=0, patch=0, experiments={'flag': True}, version_to_prepare='0.9.0')"
    )
    assert dict(flagged.number.experiments) == {}
    assert flagged.number.version_to_prepare is None


def test_a_version_returns_its_own_flags_and_otherwise_the_given_defaults() -> None:
    version = Version("1.0.0", experiments={Flags.NEW_SHUFFLE: True, "old_order": False})
    assert dict(version.experiments) == {"new_shuffle": True, "old_order": False}
    bound = version.with_defaults({"new_shuffle": False, "fast_hash": True})
    assert [bound.implements(flag) for flag in ("new_shuffle", Flags.OLD_ORDER, "fast_hash")] == [True, False, True]
    for again in (pickle.loads(pickle.dumps(bound)), copy.copy(bound), copy.deepcopy(bound)):  # noqa: S301 (our own)
        assert again == bound
        assert again.implements("new_shuffle")
        assert again.implements("fast_hash")
        assert dict(again.experiments) == dict(bound.experiments)


def test_an_unknown_flag_is_not_found() -> None:
    version = Version("1.0.0", experiments={"new_shuffle": True}).with_defaults({"fast_hash": True})
    with pytest.raises(ExperimentNotFoundError) as caught:
        version.implements("new_shufle")
    assert caught.value.message == "no experiment 'new_shufle' in version 1.0.0"
    assert caught.value.hint == (
        "Did you mean 'new_shuffle'? There are: fast_hash, new_shuffle. "
        "Add it with: registry experiment add new_shufle --description TEXT"
    )
    with pytest.raises(ExperimentNotFoundError) as caught:
        Version("1.0.0").implements(Flags.OLD_ORDER)
    assert caught.value.hint == "Add it with: registry experiment add old_order --description TEXT"


def test_what_can_be_no_flag_is_refused() -> None:
    check_errors(
        GOLDEN / "model_version" / "what_can_be_no_flag_is_refused.txt",
        (
            partial(lambda experiments: Version("1.0.0", experiments=experiments), row)
            for row in [
                {"NewShuffle": True},
                {"": True},
                {"a" * 201: True},
                {3: True},
                {"flag": 1},
                {"flag": None},
                {"new_shuffle": True, Flags.NEW_SHUFFLE: False},
                ["flag"],
            ]
        ),
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1.0.0", "1.0.0"),
        ("v1.0.0", "1.0.0"),
        (Version(1, 0, 0), "1.0.0"),
        ("8cea22f06d74d5848608fe7ac6d6faac7bc05b55", "8cea22f06d74d5848608fe7ac6d6faac7bc05b55"),
    ],
)
def test_the_version_of_the_code_that_prepares_is_kept_without_its_v(given: Any, kept: str) -> None:
    assert Version("0.0.9", version_to_prepare=given).version_to_prepare == kept
    assert Version(Version("0.0.9", tfds_version_to_prepare=given)).version_to_prepare == kept


@pytest.mark.parametrize("given", ["", "v", "1.0", "vv1.0.0", "1.0.0 ", "master", "8CEA22F", "abc", 1, ["1.0.0"]])
def test_what_names_no_version_of_code_is_refused(given: Any) -> None:
    with pytest.raises(ReferenceSyntaxError) as caught:
        Version("0.0.9", version_to_prepare=given)
    assert caught.value.message == f"invalid version of builder code {given!r}"


def test_the_two_spellings_of_the_version_to_prepare_exclude_each_other() -> None:
    with pytest.raises(UsageError) as caught:
        Version("0.0.9", version_to_prepare="1.0.0", tfds_version_to_prepare="v1.0.0")
    assert caught.value.message == "version_to_prepare and tfds_version_to_prepare are two names for the same option"
    assert caught.value.hint == "Use only one of them."


def test_a_version_does_not_change() -> None:
    version = Version("1.0.0", experiments={"flag": True})
    with pytest.raises(AttributeError):
        version.major = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        version.experiments["flag"] = False  # type: ignore[index]
    flags = {"flag": True}
    kept = Version("1.0.0", experiments=flags)
    flags["flag"] = False
    assert kept.implements("flag")
