"""What SQL finds is what the pure rule chooses, and it costs the same among a hundred thousand versions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_costs import explain, measuring
from support.catalog_samples import publish
from support.strategies import version_requests

from registry.catalog import CatalogBackend, open_catalog
from registry.catalog.tables import alias, builder, builder_config, dataset_version
from registry.errors import NotFoundError
from registry.model import Reference, Version, VersionState, choose

NUMBERS = list(itertools.product(range(3), repeat=3))
states = st.lists(st.sampled_from(list(VersionState)), min_size=len(NUMBERS), max_size=len(NUMBERS))
places = st.integers(0, len(NUMBERS) - 1)


@pytest.fixture(scope="module")
def many(lasting_url: str) -> Iterator[CatalogBackend]:
    """mnist/plain, the default config, with 0.0.0 to 2.2.2, and another config with one version."""
    with open_catalog(lasting_url) as catalog:
        for major, minor, patch in NUMBERS:
            number = f"{major}.{minor}.{patch}"
            publish(catalog, f"mnist/plain:{number}", lengths={"train": [1]}, content=number, default_config=True)
        publish(catalog, "mnist/other:2.2.2", lengths={"train": [1]})
        yield catalog


@contextmanager
def stranger(catalog: CatalogBackend) -> Iterator[sa.Connection]:
    """A transaction past the registry's own ways."""
    with catalog._engine.begin() as connection:
        yield connection


@given(
    states=states,
    canonical=st.none() | places,
    aliases=st.dictionaries(st.sampled_from(["a", "b"]), places),
    requests=st.lists(version_requests(), max_size=5),
)
def test_sql_finds_what_the_rule_chooses(
    many: CatalogBackend,
    states: list[VersionState],
    canonical: int | None,
    aliases: dict[str, int],
    requests: list[Any],
) -> None:
    with stranger(many) as connection:
        of_mnist = (
            builder_config.c.builder_id == sa.select(builder.c.id).where(builder.c.name == "mnist").scalar_subquery()
        )
        found = connection.execute(sa.select(builder_config.c.id).where(of_mnist, builder_config.c.name == "plain"))
        config = found.scalar_one()
        ids = connection.execute(
            sa.select(dataset_version.c.id).where(dataset_version.c.config_id == config).order_by(dataset_version.c.id)
        ).scalars()
        rows = ids.all()
        connection.execute(
            sa.update(dataset_version)
            .where(dataset_version.c.id == sa.bindparam("row"))
            .values(state=sa.bindparam("s")),
            [{"row": row, "s": state.value} for row, state in zip(rows, states, strict=True)],
        )
        connection.execute(
            sa.update(builder_config)
            .where(builder_config.c.id == config)
            .values(canonical_version_id=None if canonical is None else rows[canonical])
        )
        connection.execute(sa.delete(alias))
        for name, place in aliases.items():
            connection.execute(
                sa.insert(alias).values(
                    config_id=config, name=name, version_id=rows[place], set_at=sa.func.current_timestamp(), set_by=""
                )
            )
    standing = many.standing("mnist", "plain")
    assert many.standing("mnist") == standing
    wanted = [Reference("mnist"), Reference("mnist", alias="a"), Reference("mnist", "plain", alias="b")]
    wanted += [Reference("mnist", request=request) for request in requests]
    wanted += [Reference.exactly("mnist", "plain", Version(*number)) for number in NUMBERS[::5]]
    for reference in wanted:
        choice = choose(standing, reference)
        if choice.candidate is None:
            with pytest.raises(NotFoundError, match=f"^{re.escape(choice.problem)}"):
                many.find(reference)
        else:
            found = many.find(reference)
            assert (found.version, found.state) == (choice.version, choice.candidate.state)
            assert found.status is standing.status(choice.candidate)
        chosen = [one.version for one in choice.considered if one.verdict == "chosen"]
        assert chosen == [version for version in [choice.version] if version is not None]


@pytest.fixture(scope="module", params=[6, pytest.param(100, marks=pytest.mark.long)])
def crowded(request: pytest.FixtureRequest, lasting_url: str) -> Iterator[tuple[CatalogBackend, str, int]]:
    """A dataset with 1,000 times ``param`` versions: 4.0.0 to 13.99.5, or to 13.99.99.

    Every second version is yanked, and all of 12 and 13.
    """
    patches: int = request.param
    name = f"crowd_{patches}"
    with open_catalog(lasting_url) as catalog:
        publish(catalog, f"{name}/plain:4.0.0", lengths={"train": [1]}, content="crowd", default_config=True)
        with stranger(catalog) as connection:
            config_id = connection.execute(sa.select(builder_config.c.id).order_by(builder_config.c.id.desc())).scalar()
            row = connection.execute(
                sa.select(dataset_version).where(dataset_version.c.config_id == config_id)
            ).mappings()
            values = {name: value for name, value in row.one().items() if name != "id"}
            numbers = ((4 + n // (100 * patches), n // patches % 100, n % patches) for n in range(1, 1_000 * patches))
            connection.execute(
                sa.insert(dataset_version),
                [
                    {
                        **values,
                        "major": major,
                        "minor": minor,
                        "patch": patch,
                        "state": "yanked" if patch % 2 or major > 11 else "supported",
                    }
                    for major, minor, patch in numbers
                ],
            )
            connection.execute(sa.text("ANALYZE"))  # a server does it in its own time, which may be after the test
        yield catalog, name, patches


@pytest.mark.parametrize(
    ("request_", "number"),
    [
        ("", "4.0.0"),
        (":7.*", "7.99.98"),
        (":7.50.*", "7.50.98"),
        (":^7.5", "7.99.98"),
        (":~7.5", "7.5.98"),
        (":>=5,<7", "6.99.98"),
        (":<=7", "7.99.98"),
        (":>4.3,!=11.99.98", "11.99.96"),
        (":7.3.4", "7.3.4"),
    ],
)
def test_a_look_up_costs_the_same_among_very_many_versions(
    crowded: tuple[CatalogBackend, str, int], lasting_url: str, request_: str, number: str
) -> None:
    catalog, name, patches = crowded
    request_, number = (
        text.replace("98", str(patches - 2)).replace("96", str(patches - 4)) for text in (request_, number)
    )
    for _ in range(2):  # the second one has its SQL compiled
        with measuring() as meter:
            assert str(catalog.find(f"{name}{request_}").version) == number
    assert len(meter.selects) == 2
    if lasting_url.startswith("sqlite"):
        assert meter.steps < 1_000
    else:
        with psycopg.connect(lasting_url) as connection:
            statement, parameters = meter.selects[0]
            plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).fetchall()[0][0]
        # Of 6,000 or more; small tables of the other tests' datasets may be read whole.
        assert _rows_read(plan[0]["Plan"]) < 200, explain(lasting_url, *meter.selects[0])


def _rows_read(plan: dict[str, Any]) -> int:
    """Rows of ``dataset_version`` that PostgreSQL looked at."""
    below = sum(map(_rows_read, plan.get("Plans", ())))
    if plan.get("Relation Name") != "dataset_version":
        return below
    return below + plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
