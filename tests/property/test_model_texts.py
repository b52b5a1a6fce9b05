"""Laws of the model's texts: printed versions, requests, references, file names and shard lengths parse back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import shard_lengths, split_names, versions

from registry.errors import ReferenceSyntaxError
from registry.model import (
    DEFAULT_TEMPLATE,
    Reference,
    ShardedFileTemplate,
    ShardLengths,
    Version,
    VersionRequest,
    fold_name,
)

PART = st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1)).map(str)
PART_OR_STAR = st.one_of(PART, st.just("*"))


def clauses() -> st.SearchStrategy[str]:
    """One condition of a request, in any of the forms that people write."""
    plain = st.builds(
        lambda operator, parts: operator + ".".join(parts),
        st.sampled_from(["", "=", "!="]),
        st.lists(PART_OR_STAR, min_size=1, max_size=3),
    )
    compared = st.builds(
        lambda operator, space, parts: operator + space + ".".join(parts),
        st.sampled_from(["^", "~", ">=", ">", "<=", "<"]),
        st.sampled_from(["", " "]),
        st.lists(PART, min_size=1, max_size=3),
    )
    return st.one_of(plain, compared)


REQUEST_TEXTS = st.lists(clauses(), min_size=1, max_size=3).map(", ".join)
CONFIGS = st.from_regex(r"(?=[+._-]*[a-zA-Z0-9])[a-zA-Z0-9_+.-]{1,20}", fullmatch=True)
NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,20}", fullmatch=True)
FOLDED_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
ALIASES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_.-]{0,20}", fullmatch=True)


@given(versions())
def test_a_version_is_what_it_prints(version: Version) -> None:
    assert Version.parse(str(version)) == version
    assert hash(Version.parse(str(version))) == hash(version)


@given(versions(), versions())
def test_versions_are_ordered_as_their_parts(first: Version, second: Version) -> None:
    assert (first < second) == ((first.major, first.minor, first.patch) < (second.major, second.minor, second.patch))


@given(versions(), versions())
def test_a_version_compares_with_a_text_as_with_the_version_in_the_text(first: Version, second: Version) -> None:
    text = str(second)
    assert [first == text, first < text, first <= text, first > text, first >= text] == [
        first == second,
        first < second,
        first <= second,
        first > second,
        first >= second,
    ]
    assert (first == second) <= (hash(first) == hash(second) == hash(text))
    assert first.match(text) == (first == second)


@given(versions(), st.sampled_from(["major", "minor", "patch"]))
def test_a_bumped_version_is_the_next_one_and_above(version: Version, part: str) -> None:
    if getattr(version, part) == 2**31 - 1:
        with pytest.raises(ReferenceSyntaxError):
            version.bump(part)
    else:
        assert version.bump(part) > version


@given(REQUEST_TEXTS, versions())
def test_a_request_is_what_it_prints(text: str, version: Version) -> None:
    request = VersionRequest.parse(text)
    printed = VersionRequest.parse(str(request))
    assert printed == request
    assert str(printed) == str(request)
    assert printed.allows(version) == request.allows(version)


@given(versions(), versions())
def test_an_exact_request_allows_one_version(version: Version, other: Version) -> None:
    request = VersionRequest.exactly(version)
    assert VersionRequest.parse(str(request)) == request
    assert request.exact == version
    assert request.allows(other) == (other == version)


@given(st.lists(versions(), max_size=6), REQUEST_TEXTS)
def test_the_highest_version_is_allowed_and_none_above_is(candidates: list[Version], text: str) -> None:
    request = VersionRequest.parse(text)
    allowed = [version for version in candidates if request.allows(version)]
    assert request.highest(candidates) == (max(allowed) if allowed else None)


@given(versions(), st.sampled_from(["^", "~", ">=", "<="]))
def test_a_range_holds_the_version_that_it_names(version: Version, operator: str) -> None:
    assert VersionRequest.parse(f"{operator}{version}").allows(version)


@given(versions(), st.integers(1, 3))
def test_every_request_operator_agrees_with_its_opposite(version: Version, parts: int) -> None:
    series = ".".join(str(version).split(".")[:parts])
    for bound in (series, "1.1", "2"):
        for operator, opposite in ((">=", "<"), (">", "<="), ("", "!=")):
            allowed = VersionRequest.parse(operator + bound).allows(version)
            assert allowed != VersionRequest.parse(opposite + bound).allows(version)


@given(
    st.builds(Reference, FOLDED_NAMES, st.none() | CONFIGS, st.none() | REQUEST_TEXTS.map(VersionRequest.parse))
    | st.builds(Reference, FOLDED_NAMES, st.none() | CONFIGS, st.none(), ALIASES)
)
def test_a_reference_is_what_it_prints(reference: Reference) -> None:
    assert Reference.parse(str(reference)) == reference


@given(NAMES, st.none() | CONFIGS, st.none() | REQUEST_TEXTS)
def test_config_and_version_mean_the_same_in_the_place_of_options(
    name: str, config: str | None, request: str | None
) -> None:
    plain = name + (f"/{config}" if config else "") + (f":{request}" if request else "")
    options = [f"config={config}"] * (config is not None) + [f"version={request}"] * (request is not None)
    expected = Reference.parse(plain)
    assert expected.name == fold_name(name) == fold_name(fold_name(name))
    if options and not (request and "," in request):
        assert Reference.parse(f"{name}/{','.join(options)}") == expected
        assert Reference.parse(f"{name}/{','.join(reversed(options))}") == expected
    if config and request and "," not in request:
        assert Reference.parse(f"{name}/{config}/version={request}") == expected
        assert Reference.parse(f"{name}:{request}/config={config}") == expected


@given(st.text(max_size=60) | st.text("aB/:@=,1.*^config version", max_size=40))
def test_any_text_is_a_reference_or_a_syntax_error(text: str) -> None:
    for parse in (Version.parse, VersionRequest.parse, Reference.parse):
        try:
            value = parse(text)
        except ReferenceSyntaxError:
            continue
        assert parse(str(value)) == value


@given(
    st.sampled_from(
        [
            DEFAULT_TEMPLATE,
            "{SPLIT}/{DATASET}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            "{DATASET}-{SPLIT}-{SHARD_INDEX}-of-{NUM_SHARDS}.{FILEFORMAT}",
        ]
    ),
    NAMES,
    split_names(),
    st.integers(1, 10**7),
    st.data(),
)
def test_a_shard_s_file_name_names_the_shard(
    template: str, dataset: str, split: str, num_shards: int, data: st.DataObject
) -> None:
    files = ShardedFileTemplate(dataset=dataset, template=template)
    index = data.draw(st.integers(0, num_shards - 1))
    name = files.filename(split, index, num_shards)
    assert files.parse(name) == (split, index, num_shards)
    assert files.parse(name + "x") is None
    assert ShardedFileTemplate(dataset=dataset + "x", template=template).parse(name) is None


@given(shard_lengths())
def test_shard_lengths_equal_the_list_that_they_were_created_from(lengths: ShardLengths) -> None:
    again = ShardLengths(list(lengths))
    assert again == lengths
    assert hash(again) == hash(lengths)
    assert lengths.num_examples == sum(lengths) == lengths.start(len(lengths))
    assert [lengths.start(index) for index in range(len(lengths))] == [
        sum(lengths[:index]) for index in range(len(lengths))
    ]


@given(shard_lengths())
def test_every_record_is_in_one_shard_that_holds_records(lengths: ShardLengths) -> None:
    shards = [index for index, length in enumerate(lengths) for _ in range(length)]
    assert [lengths.shard_of(position) for position in range(lengths.num_examples)] == shards
    for first in range(len(lengths) + 1):
        for stop in range(first, len(lengths) + 1):
            empty = [index for index in range(first, stop) if not lengths[index]]
            assert list(lengths.empty_shards(first, stop)) == empty
