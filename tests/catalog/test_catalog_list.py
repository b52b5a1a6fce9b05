"""Lists of datasets by tags, name, owner and state: the same on both databases, in a bounded number of queries."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_samples import publish
from support.levels import either, examples

from registry.catalog import CatalogBackend, DatasetFilter
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import DatasetNotFoundError
from registry.features import Audio, ClassLabel, FeaturesDict, Image, Scalar, Text
from registry.features.schema import features_to_json
from registry.model import DatasetMetadata, Reference, Version, VersionState, covers

TAGS = ("images", "Images", "a_b", "100%", 'quo"te', "é/ü", "back\\slash")
NAMES = ("mnist", "mnist_2", "cifar/ten", "cifar/hundred", "m")


def fill(catalog: CatalogBackend) -> None:
    for number, name in enumerate(NAMES):
        tags = tuple(tag for place, tag in enumerate(TAGS) if (place + number) % 3)
        described = DatasetMetadata(config_tags=tags, description=f"{TAGS} \x00 \ud800")
        publish(catalog, f"{name}:1.0.0", metadata=described)
    catalog.lifecycle.deprecate(Reference.parse("mnist_2:1.0.0"), "old", actor="ann")
    catalog.lifecycle.yank(Reference.parse("m:1.0.0"), "wrong", actor="ann")


@pytest.fixture
def filled(catalog: CatalogBackend) -> CatalogBackend:
    fill(catalog)
    return catalog


def test_a_list_has_what_its_conditions_say(filled: CatalogBackend) -> None:
    every = filled.datasets()
    assert len(every) == 5
    law(filled, every)


def law(catalog: CatalogBackend, every: Any) -> None:
    @given(
        tags=st.lists(st.sampled_from([*TAGS, "none", "image", "%"]), max_size=2),
        like=st.none()
        | st.text("mnist_2*?[]!c/%\\", max_size=6)
        | st.sampled_from(["*", "cifar/*", "m?ist*", "[a-m]*"]),
        owner=st.sampled_from([None, "ann", "bob"]),
        state=st.sampled_from([None, *VersionState]),
    )
    def check(tags: list[str], like: str | None, owner: str | None, state: VersionState | None) -> None:
        states = {"mnist_2": VersionState.DEPRECATED, "m": VersionState.YANKED}
        found = catalog.datasets(DatasetFilter(tags=tags, like=like, owner=owner, state=state))
        assert found == tuple(
            summary
            for summary in every
            if set(tags) <= set(summary.config_tags)
            and (like is None or fnmatchcase(summary.dataset, like))
            and owner in (None, "ann")
            and state in (None, states.get(summary.name, VersionState.SUPPORTED))
        )

    from hypothesis import settings

    settings(max_examples=examples(60))(check)()


@pytest.mark.parametrize("together", [1, 2, 500])
@pytest.mark.parametrize("step", either(3, 1))
def test_datasets_are_listed_after_a_name(
    filled: CatalogBackend, monkeypatch: pytest.MonkeyPatch, together: int, step: int
) -> None:
    monkeypatch.setattr("registry.catalog.queries._READ_AT_ONCE", together)
    for wanted in (
        None,
        DatasetFilter(like="*m*"),
        DatasetFilter(tags=["é/ü"]),
        DatasetFilter(like="[a-m]*", tags=["Images"]),
    ):
        every = filled.datasets(wanted)
        names = [summary.dataset for summary in filled.datasets()]
        for number, after in enumerate([None, *names, "zzz", "cifar", "mnist/"]):
            following = every if after is None else [it for it in every if it.dataset in names[number:]]
            for limit in (None, 0, 1, 2, 3, 10)[number % step :: step]:
                if after in (None, *names):
                    assert filled.datasets(wanted, after=after, limit=limit) == tuple(following)[:limit]
    assert [it.dataset for it in filled.datasets(after="cifar", limit=2)] == ["cifar/hundred", "cifar/ten"]
    assert [it.dataset for it in filled.datasets(after="mnist", limit=1)] == ["mnist_2"]
    assert filled.datasets(after="zzz", limit=1) == ()


def test_only_datasets_that_patterns_cover_are_listed(filled: SqlCatalog) -> None:
    every = filled.datasets()
    for patterns in (
        ["m"],
        ["MNIST"],
        ["mnist*"],
        ["m?ist_2"],
        ["cifar/ten"],
        ["*/t*", "m"],
        ["mnist_2", "cifar"],
        ["%"],
    ):
        listed = tuple(it for it in every if covers(patterns, it.name, it.config))
        assert filled.datasets(covered_by=patterns) == listed
        assert (
            filled.datasets(DatasetFilter(like="*[nm]*"), covered_by=patterns, limit=1)
            == tuple(it for it in listed if "n" in it.dataset or "m" in it.dataset)[:1]
        )


def test_a_page_of_a_list_takes_three_queries(filled: CatalogBackend, queries: list[str]) -> None:
    queries.clear()
    assert len(filled.datasets(after="cifar/ten", limit=2)) == 2
    assert len([query for query in queries if query.startswith("SELECT")]) == 3


def test_a_list_says_what_is_withdrawn_or_empty_and_who_published_it(catalog: CatalogBackend) -> None:
    publish(catalog, "nothing:1.0.0", lengths={"train": [0]})
    publish(catalog, "mnist:1.0.0")
    catalog.lifecycle.drop(Reference.parse("mnist:1.0.0"), "wrong", actor="ann")
    mnist, nothing = catalog.datasets()
    assert (mnist.is_withdrawn, mnist.is_empty, mnist.num_bytes) == (True, False, 900)
    assert (nothing.is_withdrawn, nothing.is_empty, nothing.num_bytes) == (False, True, 0)
    assert (nothing.published_by, nothing.published_at) == ("ann", catalog.find("nothing").published_at)


def test_a_list_takes_two_queries_whatever_it_lists(filled: CatalogBackend, queries: list[str]) -> None:
    for wanted in (None, DatasetFilter(tags=["images"], like="*", owner="ann")):
        queries.clear()
        filled.datasets(wanted)
        assert len([query for query in queries if query.startswith("SELECT")]) == 2


def test_a_summary_says_its_licence_its_content_and_what_its_features_are(catalog: CatalogBackend) -> None:
    kinds: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
        "digits": (("image",), {"image": Image(shape=(8, 8, 1))}),
        "speech": (("audio", "text"), {"sound": Audio(), "words": Text()}),
        "plain": ((), {"image": Scalar("int64"), "Audio": ClassLabel(names=["Text", "Image"])}),
    }
    for name, (_, features) in kinds.items():
        publish(
            catalog,
            f"{name}:1.0.0",
            features_json=features_to_json(FeaturesDict(features)),
            metadata=DatasetMetadata(license=f"license of {name}"),
        )
    for summary in catalog.datasets():
        assert summary.kinds == kinds[summary.name][0]
        assert summary.license == f"license of {summary.name}"
        assert summary.content_digest == catalog.find(summary.name).content_digest


def test_versions_are_listed_below_a_number(catalog: CatalogBackend) -> None:
    for number in ("0.9.0", "1.0.0", "1.0.1", "1.2.0", "2.0.0"):
        publish(catalog, f"mnist:{number}")
    every, now = catalog.versions("mnist"), datetime.now(UTC)
    for below in (None, *(summary.version for summary in every), Version(1, 1, 5), Version(9, 0, 0)):
        for limit in (None, 1, 3, 10):
            listed = tuple(summary for summary in every if below is None or summary.version < below)[:limit]
            assert catalog.versions("mnist", below=below, limit=limit) == listed
            assert catalog.versions("mnist", at=now, below=below, limit=limit) == listed
    with pytest.raises(DatasetNotFoundError):
        catalog.versions("cifar", limit=1)
