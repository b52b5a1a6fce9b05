"""Who may put files into a place of an object store: one content at a time, whatever the database."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from support.catalog_clocks import set_clocks
from support.catalog_samples import sample

from registry.catalog import CatalogBackend, Holder, PublicationDetails, Reservation, open_catalog, schema
from registry.errors import (
    ConflictError,
    NotFoundError,
    ReservationLostError,
    ReservedError,
    UsageError,
    VersionExistsError,
)
from registry.model import Reference
from registry.storage.names import Owner

PLACE = "s3://bucket/mnist/1.0.0"


def holder(**changed: object) -> Holder:
    """A publisher of this process, or of a process with other facts."""
    return replace(Holder.of_this_process("ann"), owner=replace(Owner.this_process(), **changed))  # type: ignore[arg-type]


def far() -> Holder:
    """A publisher of whom nobody here knows whether it is alive."""
    return holder(host="far", machine="far")


def dead() -> Holder:
    """A publisher that was killed on this machine."""
    return holder(pid=2**22 + 1)


def reserve(catalog: CatalogBackend, one: Holder, digest: str = "a") -> tuple[Reservation, Reservation | None]:
    return catalog.reservations.reserve(PLACE, Reference.parse("mnist:1.0.0"), digest * 64, one)


def names(held: Reservation) -> list[str]:
    """The publishers that share a reservation; when each began is stamped by the catalog's clock."""
    return [publisher.name for publisher in held.holders]


def test_the_same_content_joins_and_other_content_waits(catalog: CatalogBackend) -> None:
    one, other = far(), holder()
    held, before = reserve(catalog, one)
    assert (before, held.is_cleaning, held.found, held.reference) == (None, False, None, "mnist:1.0.0")

    joined, _ = reserve(catalog, other)
    assert names(joined) == [one.name, other.name]
    assert joined.token == held.token
    one, other = joined.holders  # since the time of the catalog
    with pytest.raises(ReservedError) as caught:
        reserve(catalog, holder(), "b")

    assert str(caught.value) == (
        f"mnist:1.0.0 is being published with other content by {one}, {other}: s3://bucket/mnist/1.0.0"
    )
    assert str(one) == f"ann (process {one.owner.pid} on far, since {one.since:%Y-%m-%d %H:%M:%S} UTC)"
    assert caught.value.hint == (
        "Wait until that has ended, then try again. If that process died on another machine, release what it holds "
        "with: registry reservation release mnist:1.0.0"
    )
    assert caught.value.exit_code == 4


def test_a_place_is_reserved_for_a_digest(catalog: CatalogBackend) -> None:
    with pytest.raises(UsageError, match="the digest of the content '' is not a sha256"):
        reserve(catalog, holder(), "")
    assert catalog.reservations.list() == ()


def test_what_a_dead_publisher_held_is_taken_over_and_cleaned_by_other_content(catalog: CatalogBackend) -> None:
    gone, mine = dead(), holder()
    held, _ = reserve(catalog, gone)
    catalog.reservations.note_found(held, gone, ["thesis.txt"])

    taken, before = reserve(catalog, mine, "b")

    assert before is not None
    assert names(before) == [gone.name]
    assert (taken.is_cleaning, taken.token, names(taken)) == (True, held.token, [mine.name])
    assert taken.found == ("thesis.txt",)
    with pytest.raises(ReservedError, match=r"^the place of mnist:1\.0\.0 is being cleared by "):
        reserve(catalog, holder(), "b")
    assert not catalog.reservations.end_cleaning(taken, mine).is_cleaning
    assert not reserve(catalog, holder(), "b")[0].is_cleaning


def test_the_same_content_goes_on_where_a_dead_publisher_ended(catalog: CatalogBackend) -> None:
    held, _ = reserve(catalog, dead())
    mine = holder()
    taken, _ = reserve(catalog, mine)
    assert (taken.is_cleaning, taken.token, names(taken)) == (False, held.token, [mine.name])


def test_only_the_sole_holder_of_a_reservation_removes_objects(catalog: CatalogBackend) -> None:
    mine, other = holder(), holder()
    held, _ = reserve(catalog, mine)
    reserve(catalog, other)
    assert catalog.reservations.begin_cleaning(held, mine) is None
    catalog.reservations.leave(held, other, forget=True)
    assert catalog.reservations.begin_cleaning(held, mine) is not None
    with pytest.raises(ReservedError, match="is being cleared by"):
        reserve(catalog, other)


def test_the_objects_that_existed_before_are_recorded_once(catalog: CatalogBackend) -> None:
    mine, other = holder(), holder()
    held, _ = reserve(catalog, mine)
    reserve(catalog, other)
    assert catalog.reservations.note_found(held, mine, ["b", "a"]).found == ("a", "b")
    assert catalog.reservations.note_found(held, other, ["a", "b", "ours"]).found == ("a", "b")


def test_the_row_uses_the_reservation_up(catalog: CatalogBackend) -> None:
    version, shards = sample("mnist:1.0.0")
    mine, other = holder(), holder()
    held, _ = catalog.reservations.reserve(PLACE, version.reference, version.content_digest, mine)
    catalog.reservations.reserve(PLACE, version.reference, version.content_digest, other)

    assert catalog.publish(version, shards, promote=True, actor="ann", details=PublicationDetails(held=(held, mine)))

    assert catalog.reservations.list() == ()
    with pytest.raises(ReservedError, match=r"^the reservation of mnist:1\.0\.0 was taken away"):
        catalog.reservations.begin_cleaning(held, other)
    assert not catalog.publish(
        version, shards, promote=True, actor="ann", details=PublicationDetails(held=(held, other))
    )
    with pytest.raises(VersionExistsError):
        reserve(catalog, holder(), "b")
    assert catalog.reservations.list() == (), "a refusal leaves none"


@pytest.mark.parametrize("how", ["released", "taken over", "cleaning"])
def test_a_publication_with_a_lost_reservation_writes_no_row(catalog: CatalogBackend, how: str) -> None:
    (version, shards), mine = sample("mnist:1.0.0"), far()
    held, _ = catalog.reservations.reserve(PLACE, version.reference, version.content_digest, mine)
    if how == "cleaning":
        catalog.reservations.begin_cleaning(held, mine)
    else:
        catalog.reservations.release("mnist", "1.0.0")
    if how == "taken over":
        reserve(catalog, holder(), "b")

    with pytest.raises(ReservedError, match="was taken away"):
        catalog.publish(version, shards, promote=True, actor="ann", details=PublicationDetails(held=(held, mine)))

    assert catalog.published_digest("mnist", None, version.version) is None
    assert catalog.datasets() == ()


def test_files_in_place_are_not_published_while_others_put_files_there(catalog: CatalogBackend) -> None:
    (version, shards), mine = sample("mnist:1.0.0"), holder()
    reserve(catalog, mine, "b")
    with pytest.raises(ReservedError):
        catalog.publish(version, shards, promote=True, actor="ann", details=PublicationDetails(unreserved=PLACE))
    assert catalog.publish(
        version, shards, promote=True, actor="ann", details=PublicationDetails(unreserved=PLACE + "x")
    )


def test_the_reservation_of_a_dead_publisher_can_be_released(catalog: CatalogBackend) -> None:
    reserve(catalog, holder())
    (alive,) = catalog.reservations.list("mnist")[0].holders  # since the time of the catalog
    with pytest.raises(ConflictError) as caught:
        catalog.reservations.release("mnist", "1.0.0")
    assert str(caught.value) == f"the reservation of mnist:1.0.0 is in use: by {alive}"
    assert names(catalog.reservations.release("mnist", "1.0.0", force=True, dry_run=True)[0]) == [alive.name]
    assert names(catalog.reservations.list("mnist")[0]) == [alive.name]
    catalog.reservations.release("mnist", "1.0.0", force=True)
    assert catalog.reservations.list("mnist")[0].holders == ()
    assert catalog.reservations.list("other") == ()
    with pytest.raises(NotFoundError):
        catalog.reservations.release("mnist", "1.0.1")


def test_a_publisher_learns_that_its_reservation_was_taken_away(catalog: CatalogBackend) -> None:
    mine = holder()
    held, _ = reserve(catalog, mine)
    catalog.reservations.require(held, mine)
    catalog.reservations.release("mnist", "1.0.0", force=True)
    with pytest.raises(ReservationLostError) as caught:
        catalog.reservations.require(held, mine)
    assert str(caught.value) == "the reservation of mnist:1.0.0 was taken away while its files were uploaded"
    other = holder()
    taken, _ = reserve(catalog, other, "b")
    with pytest.raises(ReservationLostError, match=r"; now .* holds it(?m:$)"):
        catalog.reservations.require(held, mine)
    catalog.reservations.require(taken, other)


def test_of_many_who_reserve_at_once_one_content_wins(catalog: CatalogBackend) -> None:
    start, won, refused = threading.Barrier(8), [], []

    def run(digest: str) -> None:
        start.wait()
        try:
            won.append(reserve(catalog, holder(), digest)[0].content_digest)
        except ReservedError as error:
            refused.append(error)

    threads = [threading.Thread(target=run, args=("abcd"[index % 4],)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 2
    assert len(set(won)) == 1
    assert len(refused) == 6


def test_a_populated_catalog_loses_only_its_reservations_on_the_way_back(catalog_url: str) -> None:

    version, shards = sample("mnist:1.0.0")
    with open_catalog(catalog_url) as catalog:
        catalog.publish(version, shards, promote=True, actor="ann")
        catalog.reservations.reserve("s3://b/x", Reference.parse("mnist:2.0.0"), "a" * 64, holder())
        assert catalog.reservations.list()[0].reserved_at <= datetime.now(UTC)
    before = schema.REVISIONS[schema.REVISIONS.index("0005") - 1]
    schema.downgrade(catalog_url, before)
    schema.upgrade(catalog_url)
    assert schema.check(catalog_url) == []
    with open_catalog(catalog_url) as catalog:
        assert catalog.reservations.list() == ()
        assert catalog.find("mnist").content_digest == version.content_digest


def test_a_location_is_taken_over_only_from_publishers_that_have_ended(catalog: CatalogBackend) -> None:
    mine, day, now = holder(), timedelta(days=1), timedelta()

    def take(one: Holder, *, ago: timedelta, older_than: timedelta) -> Reservation | None:
        with set_clocks(-ago):
            held, _ = reserve(catalog, one)
        taken = catalog.reservations.take_over(held, mine, older_than=older_than)
        for each in (one, mine):
            catalog.reservations.leave(held, each, forget=True)
        assert catalog.reservations.list() == ()
        return taken

    assert take(holder(), ago=day, older_than=now) is None
    assert take(far(), ago=day, older_than=2 * day) is None
    for one in (far(), dead()):
        taken = take(one, ago=day, older_than=now)
        assert (taken.is_cleaning, names(taken)) == (True, [mine.name])

    held, _ = reserve(catalog, dead())
    assert catalog.reservations.take_over(replace(held, token="f" * 32), mine, older_than=now) is None
    assert catalog.reservations.take_over(held, mine, older_than=now) is not None
    with pytest.raises(ReservedError, match="is being cleared by ann"):
        reserve(catalog, holder())
    assert catalog.reservations.take_over(held, holder(), older_than=now) is None
