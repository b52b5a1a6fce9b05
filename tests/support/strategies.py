"""Hypothesis strategies that several property tests share. Append only: others build on what is here."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import strategies as st

from registry.model import Candidate, ShardLengths, Standing, Version, VersionClause, VersionRequest, VersionState
from registry.model.standing import in_order
from registry.splits import ReadInstruction

NAME_CHARACTERS = "abcXYZ019_-"


def split_names() -> st.SearchStrategy[str]:
    """Names that a published split may have."""
    return st.text(NAME_CHARACTERS, min_size=1, max_size=12).filter(
        lambda name: name != "all" and any(character.isalnum() for character in name)
    )


def shard_lengths(*, max_shards: int = 12, max_length: int = 60) -> st.SearchStrategy[ShardLengths]:
    """Shard lengths with many empty shards among them, maybe no shard at all."""
    length = st.one_of(st.just(0), st.integers(0, max_length))
    return st.lists(length, max_size=max_shards).map(ShardLengths)


def large_shard_lengths() -> st.SearchStrategy[ShardLengths]:
    """Shard lengths of up to 10**12 records in all."""
    return shard_lengths(max_shards=8, max_length=10**11)


def layouts(*, max_splits: int = 3) -> st.SearchStrategy[dict[str, ShardLengths]]:
    """At least one split, by name, with its shard lengths."""
    return st.dictionaries(split_names(), shard_lengths(), min_size=1, max_size=max_splits)


def percents(*, low: int = -100, high: int = 100) -> st.SearchStrategy[int | Fraction]:
    """Percentages with up to six decimals, exact."""
    return st.one_of(
        st.integers(low, high),
        st.integers(low * 10**6, high * 10**6).map(lambda millionths: Fraction(millionths, 10**6)),
    )


def read_instructions(names: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[ReadInstruction]:
    """Sums of one to three slices of any unit, as the constructor takes them; most of them fit no particular layout."""
    name = st.one_of(st.just("all"), split_names() if names is None else names)

    def optional(bounds: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.one_of(st.none(), bounds)

    whole = optional(st.integers(-(10**20), 10**20))
    percent = optional(
        st.one_of(percents(), st.floats(-100, 100, allow_nan=False), st.decimals(-100, 100, places=5).map(Decimal))
    )
    one = st.one_of(
        st.builds(ReadInstruction, name, whole, whole, st.sampled_from(["abs", "shard"])),
        st.builds(ReadInstruction, name, percent, percent, st.just("%")),
    )
    return st.recursive(one, lambda inner: st.one_of(_sums(inner), _parts(inner)), max_leaves=4)


def _sums(inner: st.SearchStrategy[ReadInstruction]) -> st.SearchStrategy[ReadInstruction]:
    return st.lists(inner, min_size=1, max_size=3).map(lambda parts: sum(parts[1:], parts[0]))


@st.composite
def _parts(draw: st.DrawFn, inner: st.SearchStrategy[ReadInstruction]) -> ReadInstruction:
    """Some of the equal parts of an instruction; four leaves are never nested too deep."""
    count = draw(st.one_of(st.integers(1, 5), st.integers(1, 10**20)))
    first, stop = sorted((draw(st.integers(0, count)), draw(st.integers(0, count))))
    unit = draw(st.sampled_from(["abs", "shard"]))
    return draw(inner).part(first, stop, of=count, unit=unit, drop_remainder=draw(st.booleans()))


def versions() -> st.SearchStrategy[Version]:
    """Version numbers, most of them with small parts, so that requests match some."""
    part = st.one_of(st.integers(0, 3), st.integers(0, 2**31 - 1))
    return st.builds(Version, part, part, part)


def search_texts() -> st.SearchStrategy[str]:
    """Words of descriptions, feature names and searches: a few words in many spellings, and their prefixes."""
    word = st.one_of(
        st.sampled_from(
            ["digit", "digits", "Digits", "dig", "open_images", "ImageNet2012", "x", "4", "v4", "and", "NOT"]
        ),
        st.sampled_from(
            ["größe", "GROSSE", "Ångström", "ﬁne", "手書き数字", "数", "हिन्दी", "ŁÓDŹ", "naïve", "Ελλάδα", "한국"]
        ),
        st.text("aeé ıIİßς1٣数ぱ_-.'\"*():^\0\u00ad\u0301\U0001f522", max_size=6),
    )
    separator = st.sampled_from([" ", "  ", "\n", "_", "-", ", ", "/", "\u00a0", "\u3000", "'", '"', "*"])
    return st.lists(st.tuples(word, separator), max_size=5).map(lambda parts: "".join(map("".join, parts)))


def version_requests(*, largest: int = 3) -> st.SearchStrategy[VersionRequest]:
    """Requests of every kind, with small parts."""
    part = st.integers(0, largest)
    prefixes = st.one_of(st.tuples(part), st.tuples(part, part), st.tuples(part, part, part))
    plain = st.builds(
        lambda operator, parts: VersionClause(operator, *parts),
        st.sampled_from(["", "!="]),
        st.tuples(*[st.none() | part] * 3),
    )
    compared = st.builds(
        lambda operator, parts: VersionClause(operator, *parts),
        st.sampled_from(["^", "~", ">=", ">", "<=", "<"]),
        prefixes,
    )
    return st.lists(plain | compared, min_size=1, max_size=3).map(lambda clauses: VersionRequest(tuple(clauses)))


@st.composite
def standings(draw: st.DrawFn, *, config: str | None = None) -> Standing:
    """A few versions in any state, perhaps a canonical one, perhaps aliases."""
    part = st.integers(0, 2)
    numbers = draw(st.lists(st.builds(Version, part, part, part), min_size=1, max_size=8, unique=True))
    candidates = [
        Candidate(
            version=number,
            state=draw(st.sampled_from(list(VersionState))),
            message=draw(st.sampled_from(["", "wrong labels"])),
        )
        for number in numbers
    ]
    return Standing(
        name="mnist",
        config=config,
        candidates=in_order(candidates),
        canonical=draw(st.none() | st.sampled_from(numbers)),
        aliases=draw(st.dictionaries(st.sampled_from(["paper", "stable"]), st.sampled_from(numbers))),
    )
