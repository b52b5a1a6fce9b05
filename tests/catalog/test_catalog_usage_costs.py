"""What the disk space of many versions costs: queries do not grow with the versions, work grows no faster than them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_samples import publish

from registry.catalog import CatalogBackend, VersionSize
from registry.model import Reference, Version, VersionState
from registry.publishing.usage import Total, measure_usage
from registry.storage import open_store


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
def test_the_number_of_queries_does_not_depend_on_the_number_of_versions(
    catalog: CatalogBackend, queries: list[str], tmp_path: Path, is_shared: bool, check: bool
) -> None:
    counts = []
    for number in range(12):
        location = str(tmp_path / "shared") if is_shared else str(tmp_path / f"place/{number}")
        publish(catalog, f"mnist:1.0.{number}", content=str(number), location=location)
        if number in (2, 11):
            queries.clear()
            found = measure_usage(catalog, open_store(tmp_path), None, check=check)
            assert len(found.versions) == number + 1
            counts.append(len(queries))
    assert counts == [1 + is_shared + 2 * check] * 2  # the shards and the attachments of the listed versions


class ManyVersions:
    """As much of a catalog as ``measure_usage`` asks: versions of some datasets at some places."""

    def __init__(self, named: dict[Reference, tuple[str, list[tuple[str, int]]]]) -> None:
        self.named = named
        self.shards = self

    def sizes(self) -> tuple[VersionSize, ...]:
        return tuple(
            VersionSize(
                name=reference.name,
                config=None,
                version=reference.exact or Version(0, 0, 0),
                state=VersionState.SUPPORTED,
                locations=(location,),
                former=(),
                num_files=len(files),
                num_bytes=sum(size for _, size in files),
            )
            for reference, (location, files) in self.named.items()
        )

    def files_of(self, references: Any, *, attachments: bool = False) -> dict[Reference, list[tuple[str, int]]]:
        del attachments  # they have none
        return {reference: self.named[reference][1] for reference in references}


def calls_of(function: Callable[[], object]) -> int:
    """The number of calls that Python makes in a function."""
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


@pytest.mark.parametrize("kind", ["versions", "datasets", "one place"])
def test_the_work_grows_no_faster_than_the_versions(tmp_path: Path, kind: str) -> None:
    calls = []
    for size in (50, 200):
        many = ManyVersions(
            {
                Reference.exactly(f"d{number if kind == 'datasets' else 0}", None, Version(1, 0, number)): (
                    f"/place/{0 if kind == 'one place' else number}",
                    [("a", 1), (f"b{number}", 2)],
                )
                for number in range(size)
            }
        )
        calls.append(calls_of(lambda many=many: measure_usage(many, open_store(tmp_path), None)))  # type: ignore[misc]
    assert calls[1] < 4.8 * calls[0]


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(0, 5)),
        st.tuples(
            st.sampled_from(["/x", "/x/in", "/x/in/side", "/xy", "/z"]),
            st.lists(st.sampled_from(["one", "two", "in/one", "side/two"]), unique=True),
        ),
    )
)
def test_every_total_counts_each_file_once(chosen: dict[tuple[str, int], tuple[str, list[str]]]) -> None:
    """The law, for versions at the same places, at places inside each other, and elsewhere."""
    sizes = {
        path: 10**number for number, path in enumerate(sorted({f"{at}/{f}" for at, fs in chosen.values() for f in fs}))
    }
    named = {
        Reference.exactly(name, None, Version(1, 0, number)): (
            place,
            [(file, sizes[f"{place}/{file}"]) for file in files],
        )
        for (name, number), (place, files) in chosen.items()
    }
    found = measure_usage(ManyVersions(named), "/data", None)  # type: ignore[arg-type]

    def total(references: list[Reference]) -> Total:
        paths = {f"{named[one][0]}/{file}" for one in references for file, _ in named[one][1]}
        return Total(num_versions=len(references), num_files=len(paths), num_bytes=sum(sizes[path] for path in paths))

    assert found.total == total(list(named))
    assert found.datasets == {
        name: total([one for one in named if one.name == name]) for name in {one.name for one in named}
    }
    places = {place for place, _ in named.values()}
    assert found.locations == {place: total([one for one in named if named[one][0] == place]) for place in places}
    for one in found.versions:
        ours = {f"{one.location}/{file}" for file, _ in named[one.reference][1]}
        others = {
            f"{named[other][0]}/{file}" for other in named if other != one.reference for file, _ in named[other][1]
        }
        assert one.num_shared_bytes == sum(sizes[path] for path in ours & others)
