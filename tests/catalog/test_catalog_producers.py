"""What made a version is kept in its event, and a publication that may only continue its own source is refused."""

from __future__ import annotations

import pytest
from support.catalog_samples import publish, sample

from registry.catalog import CatalogBackend, EventFilter, Promotion, PublicationDetails, stream_events
from registry.errors import OtherSourceError
from registry.model import NameUse, Producer

HERE = Producer(action="add", kind="csv", place="/here/prices.csv")
THERE = Producer(action="add", kind="csv", place="/there/prices.csv")


def add(
    catalog: CatalogBackend, reference: str, producer: Producer, name_use: NameUse | None = "derived"
) -> Promotion | None:
    version, shards = sample(reference)
    details = PublicationDetails(producer=producer, name_use=name_use)
    return catalog.publish(version, shards, promote=None, actor="ann", details=details)


def test_the_newest_version_is_named_first(catalog: CatalogBackend) -> None:
    assert catalog.producers("prices", None) == ()
    add(catalog, "prices:1.0.0", HERE)
    add(catalog, "prices:3.0.0", THERE, "replace")
    add(catalog, "prices:2.0.0", Producer(action="build"), None)
    publish(catalog, "prices:4.0.0")
    found = [(str(reference), producer) for reference, producer in catalog.producers("prices", None)]
    assert found == [
        ("prices:4.0.0", Producer()),
        ("prices:2.0.0", Producer(action="build")),
        ("prices:3.0.0", THERE),
        ("prices:1.0.0", HERE),
    ]
    report = catalog.log.verify()
    assert report.faults == ()


def test_a_new_config_meets_the_newest_version_of_each_other_one(catalog: CatalogBackend) -> None:
    add(catalog, "prices/eu:1.0.0", HERE)
    add(catalog, "prices/eu:2.0.0", HERE)
    add(catalog, "prices/us:1.0.0", THERE, "given")
    found = {str(reference): producer for reference, producer in catalog.producers("prices", "uk")}
    assert found == {"prices/us:1.0.0": THERE, "prices/eu:2.0.0": HERE}
    assert [str(reference) for reference, _ in catalog.producers("prices", "eu")] == [
        "prices/eu:2.0.0",
        "prices/eu:1.0.0",
    ]


@pytest.mark.parametrize(
    ("name_use", "producer", "is_allowed"),
    [
        ("derived", HERE, True),
        ("derived", THERE, False),
        ("derived", Producer(action="add", kind="json", place=HERE.place), False),
        ("given", THERE, True),
        ("replace", THERE, True),
        (None, Producer(action="build"), True),
    ],
)
def test_the_transaction_refuses_another_source(
    catalog: CatalogBackend, name_use: NameUse | None, producer: Producer, is_allowed: bool
) -> None:
    add(catalog, "prices:1.0.0", HERE)
    if is_allowed:
        assert add(catalog, "prices:2.0.0", producer, name_use) is not None
        return
    with pytest.raises(OtherSourceError) as caught:
        add(catalog, "prices:2.0.0", producer, name_use)
    assert caught.value.message == f"prices:1.0.0 comes from /here/prices.csv (csv), not from {producer}"
    assert [str(one.version) for one in catalog.versions("prices")] == ["1.0.0"]
    assert len(list(stream_events(catalog.log, EventFilter(actions=("publish",))))) == 1


def test_a_producer_that_offers_the_same_content_is_recorded_once(catalog: CatalogBackend) -> None:
    add(catalog, "prices:1.0.0", Producer(action="build"), None)
    reference = catalog.find("prices").reference
    with pytest.raises(OtherSourceError):
        catalog.add_producer(reference, HERE, "given", actor="ann")
    for _ in range(2):
        catalog.add_producer(reference, HERE, "replace", actor="ann")
    assert [producer for _, producer in catalog.producers("prices", None)] == [HERE]
    assert [event.action for event in stream_events(catalog.log, EventFilter())] == ["publish", "producer"]
    assert catalog.log.verify().faults == ()
    add(catalog, "prices:2.0.0", HERE)


def test_the_same_content_is_known_whoever_offers_it(catalog: CatalogBackend) -> None:
    add(catalog, "prices:1.0.0", HERE)
    assert add(catalog, "prices:1.0.0", THERE) is None
    assert [producer for _, producer in catalog.producers("prices", None)] == [HERE]
