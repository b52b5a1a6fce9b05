"""The SQL of a version request allows exactly what the request itself allows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from registry.catalog.selection import request_condition
from registry.catalog.tables import dataset_version
from registry.model import Version, VersionClause, VersionRequest, request_bounds
from registry.model.version import MAX_PART

small = st.integers(0, 3) | st.just(MAX_PART)
prefixes = st.one_of(st.tuples(small), st.tuples(small, small), st.tuples(small, small, small))
wildcards = st.tuples(*[st.none() | small] * 3)
clauses = st.one_of(
    st.builds(lambda operator, parts: VersionClause(operator, *parts), st.sampled_from(["", "!="]), wildcards),
    st.builds(
        lambda operator, parts: VersionClause(operator, *parts),
        st.sampled_from(["^", "~", ">=", ">", "<=", "<"]),
        prefixes,
    ),
)
requests = st.builds(lambda parts: VersionRequest(tuple(parts)), st.lists(clauses, min_size=1, max_size=3))


@pytest.fixture(scope="module")
def numbers() -> Iterator[sa.Connection]:
    """A table with the numbers 0.0.0 to 4.4.4 and those at the end, under the name of the real one."""
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE dataset_version (major INTEGER, minor INTEGER, patch INTEGER)")
        rows = list(itertools.product((*range(5), MAX_PART - 1, MAX_PART), repeat=3))
        connection.exec_driver_sql("INSERT INTO dataset_version VALUES (?, ?, ?)", rows)
        yield connection
    engine.dispose()


@given(request=requests)
def test_sql_allows_what_the_request_allows(numbers: sa.Connection, request: VersionRequest) -> None:
    columns = (dataset_version.c.major, dataset_version.c.minor, dataset_version.c.patch)
    every = [Version(*row) for row in numbers.execute(sa.select(*columns))]

    selected = numbers.execute(sa.select(*columns).where(request_condition(request)))

    assert {Version(*row) for row in selected} == {version for version in every if request.allows(version)}


@given(request=requests)
def test_what_a_request_allows_lies_between_its_bounds(numbers: sa.Connection, request: VersionRequest) -> None:
    bounds = request_bounds(request)
    columns = (dataset_version.c.major, dataset_version.c.minor, dataset_version.c.patch)
    for row in numbers.execute(sa.select(*columns)):
        between = bounds.low <= tuple(row) <= bounds.high
        assert request.allows(Version(*row)) <= between
        if not bounds.rest:
            assert request.allows(Version(*row)) == between
