"""A shared catalog with something for each call of the protocol, and the arguments of each call as JSON.

``fill`` makes a dataset about which every call succeeds. ``arguments`` are those calls, for this dataset or for another
one that has the same versions, or does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from registry.catalog import CatalogBackend, DataDirectory, EventFilter, Holder, Proposal, Reservation
from registry.catalog.events import recorder
from registry.catalog.service.calls import CALLS, kind_of
from registry.catalog.service.messages import codec
from registry.catalog.sql_catalog import SqlCatalog
from registry.catalog.tables import metadata
from registry.model import Attachment, Description, Producer, Reference, Role, SplitFingerprint, Version
from registry.storage.names import Owner
from support.catalog_samples import publish, sample

DATA = "s3://lab/data"
PLACE = f"{DATA}/{{}}/plain/9.0.0"
ENDED = Owner(host="elsewhere", machine="1", boot="", namespace="", pid=1, started="")
HOLDER = Holder(name="1" * 32, actor="ann", owner=ENDED, since=datetime(2026, 1, 1, tzinfo=UTC))
NEWER = Holder(name="2" * 32, actor="ann", owner=ENDED, since=datetime(2026, 1, 1, tzinfo=UTC))
LOGIN = "0123456789ab"
WEBHOOK = "ba9876543210"
KEYS = ("a key of sixteen characters",)


def fill(catalog: CatalogBackend, dataset: str) -> None:
    """Publish ``dataset``, whose default config is ``plain``, with an alias, a mirror, withdrawn versions and more."""
    for number in ("1.0.0", "1.1.0", "2.0.0", "3.0.0"):
        publish(catalog, f"{dataset}/plain:{number}", content=number, default_config=True)
    publish(catalog, f"{dataset}/small:1.0.0", content="small")
    publish(catalog, f"{dataset}/strict:1.0.0", content="strict")
    publish(catalog, f"{dataset}/strict:2.0.0", content="stricter", promote=False)
    by = {"actor": "ann"}
    catalog.lifecycle.promote(_exactly(dataset, "1.1.0"), **by)
    catalog.lifecycle.drop(_exactly(dataset, "2.0.0"), "wrong labels", **by)
    catalog.lifecycle.yank(_exactly(dataset, "3.0.0"), "wrong labels", **by)
    catalog.lifecycle.remove(_exactly(dataset, "2.0.0"), grace=timedelta(days=1), **by)
    catalog.aliases.set("production", _exactly(dataset, "1.1.0"), expect=None, message="tested", **by)
    catalog.locations.add(_exactly(dataset, "1.1.0"), f"{DATA}/{dataset}/mirror", **by)
    catalog.reservations.reserve(PLACE.format(dataset), _exactly(dataset, "9.0.0"), "a" * 64, HOLDER)
    strict = Reference(name=dataset, config="strict")
    catalog.configs.set_protection(strict, protect=True, two_persons=True, **by)
    with authenticated("eve"):
        catalog.lifecycle.promote(Reference.parse(f"{strict}:2.0.0"), actor="eve")
    if not catalog.experiments.list():
        catalog.experiments.add("new_shuffle", "shuffles anew", **by)
        catalog.experiments.add("on", "is on", default=True, **by)
        catalog.locations.set_data_dir(DataDirectory(recorded=DATA, place=DATA), **by)
        catalog.access.create_token(LOGIN, "b" * 64, "bob", Role.READER, actor="root")
        cast("SqlCatalog", catalog).webhooks.keys = KEYS
        catalog.webhooks.create(WEBHOOK, "https://ci.example/hook", actor="root")


@contextmanager
def authenticated(name: str) -> Iterator[None]:
    """In this block, a service has authenticated whoever calls the catalog."""
    before = recorder.set(f"token {name}")
    try:
        yield
    finally:
        recorder.reset(before)


def proposal_of(catalog: CatalogBackend, dataset: str) -> Proposal:
    """The proposal that ``fill`` made; one that nobody has made if it did not make this dataset."""
    for proposal in catalog.lifecycle.proposals():
        if proposal.dataset == f"{dataset}/strict":
            return proposal
    (any_proposal, *_) = catalog.lifecycle.proposals()
    return replace(any_proposal, dataset=f"{dataset}/strict")


def values_of(catalog: CatalogBackend, dataset: str) -> dict[str, dict[str, Any]]:
    """The arguments of each call as JSON, by its name; ``dataset`` is one that ``fill`` made, or a name without one."""
    exactly = _exactly(dataset, "1.1.0")
    version, shards = sample(str(exactly), content="1.1.0")
    newer, newer_shards = sample(f"{dataset}/plain:4.0.0", content="4")
    alias = Reference(name=dataset, config="plain", alias="production")
    held = reservation_of(catalog, dataset)
    number = {"split_id": split_of(catalog, exactly)}
    fingerprints = {
        split.name: SplitFingerprint(num_examples=split.num_examples, features={}) for split in version.splits
    }
    plain = {"name": dataset, "config": "plain"}
    reason = {"reference": exactly, "reason": "wrong labels"}
    attachment = Attachment.of("statistics", "statistics.json", b"{}")
    mirror = f"{DATA}/{dataset}/mirror"
    change = {"expect": None, "message": "tested"}
    arguments: dict[str, dict[str, Any]] = {
        "now": {},
        "access.create_token": {"token_id": "c" * 12, "digest": "d" * 64, "name": "eve", "role": Role.READER},
        "access.tokens": {},
        "access.revoke_token": {"token_id": LOGIN},
        "access.authenticate": {"digest": "b" * 64},
        "access.note_refusal": {"token": None, "principal": "", "call": "find", "dataset": dataset, "reason": "x"},
        "access.refusals": {},
        "aliases.set": {"name": "tested", "reference": exactly, **change},
        "aliases.remove": {"reference": alias, **change},
        "aliases.list": {"dataset": dataset},
        "aliases.history": {"reference": alias},
        "configs.list": {"name": dataset},
        "configs.set_default": {"name": dataset, "config": "small"},
        "configs.protection": plain,
        "configs.set_protection": {"dataset": Reference(name=dataset), "protect": True},
        "experiments.list": {},
        "experiments.defaults_for": {"overrides": {"new_shuffle": True}},
        "experiments.of_version": {"version": version},
        "experiments.add": {"name": "faster", "description": "is faster"},
        "experiments.set_default": {"name": "new_shuffle", "default": True},
        "experiments.retire": {"name": "on"},
        "lifecycle.promote": {"reference": _exactly(dataset, "1.0.0")},
        "lifecycle.deprecate": {"reference": exactly, "message": "old"},
        "lifecycle.yank": reason | {"superseded_by": Version(1, 0, 0)},
        "lifecycle.drop": reason,
        "lifecycle.undo": {"action": "yank", "reference": _exactly(dataset, "3.0.0")},
        "lifecycle.describe": {"reference": exactly, "description": Description(license="MIT")},
        "lifecycle.remove": {"reference": _exactly(dataset, "2.0.0"), "grace": timedelta(days=2)},
        "lifecycle.approve": {"proposal": proposal_of(catalog, dataset)},
        "lifecycle.reject": {"proposal": proposal_of(catalog, dataset), "message": "not now"},
        "lifecycle.proposals": {"dataset": f"{dataset}/strict"},
        "lifecycle.removals": {"dataset": f"{dataset}/plain"},
        "locations.add": {"exactly": exactly, "location": f"{DATA}/{dataset}/plain/1.1.0"},
        "locations.remove": {"exactly": exactly, "location": mirror},
        "locations.relocate": {
            "exactly": exactly,
            "before": f"{DATA}/{dataset}/mirror",
            "after": f"{dataset}/plain/moved",
        },
        "locations.outside": {},
        "locations.data_dir": {},
        "locations.set_data_dir": {"data_dir": DataDirectory(recorded="/data", place="/data")},
        "events": {"dataset": dataset},
        "webhooks.create": {"webhook_id": "e" * 12, "url": "https://ci.example/other"},
        "webhooks.list": {},
        "webhooks.secret": {"webhook_id": WEBHOOK},
        "webhooks.remove": {"webhook_id": WEBHOOK},
        "webhooks.resume": {"webhook_id": WEBHOOK, "after": 1},
        "log.page": {"event_filter": EventFilter(dataset=dataset)},
        "log.verify": {},
        "log.num_rows": {},
        "log.correct_clock": {"first": 1, "last": 1, "ahead": timedelta(seconds=1)},
        "reservations.reserve": {
            "location": PLACE.format(dataset),
            "exactly": _exactly(dataset, "9.0.0"),
            "content_digest": "a" * 64,
            "holder": NEWER,
        },
        "reservations.note_found": {"reservation": held, "holder": HOLDER, "names": ["a"]},
        "reservations.take_over": {"reservation": held, "holder": NEWER, "older_than": timedelta(0)},
        "reservations.begin_cleaning": {"reservation": held, "holder": HOLDER},
        "reservations.end_cleaning": {"reservation": held, "holder": HOLDER},
        "reservations.require": {"reservation": held, "holder": HOLDER},
        "reservations.leave": {"reservation": held, "holder": HOLDER, "forget": True},
        "reservations.list": {"dataset": f"{dataset}/plain"},
        "reservations.release": {"dataset": f"{dataset}/plain", "version": "9.0.0"},
        "shards.between": {"version": version, "split": "train", "first": 0, "stop": 9},
        "shards.find": plain | {"digests": [shards["train"][0].sha256]},
        "shards.files_of": {"references": [exactly]},
        "shards.lengths_between": number | {"first": 0, "stop": 3},
        "shards.lengths_at": number | {"position": 0, "block": 512},
        "shards.empty_between": number | {"first": 0, "stop": 3},
        "shards.version_of": number,
        "find": {"reference": str(exactly)},
        "find_at": {"reference": exactly, "moment": catalog.now()},
        "published": plain | {"version": version.version},
        "published_at": {"location": version.location},
        "published_digest": plain | {"version": version.version},
        "neighbours": plain | {"version": version.version},
        "standing": {"name": dataset},
        "versions": {"name": dataset},
        "sizes": {},
        "datasets": {},
        "search": {"text": "about"},
        "explain_no_hits": {"text": "unheardof"},
        "fingerprints": {"version": version},
        "add_fingerprints": {"version": version, "fingerprints": fingerprints},
        "attachments": {"version": version},
        "attach": {"version": version, "attachments": [attachment]},
        "add_producer": {"exactly": exactly, "producer": Producer(action="add", kind="csv"), "name_use": "replace"},
        "require_publisher": {},
        "producers": plain,
        "publish": {"version": newer, "shards": newer_shards, "promote": None},
        "rename": {"name": dataset, "after": f"{dataset}_renamed"},
        "backup": {},
        "snapshot": {},
    }
    return {name: _dump(name, values) for name, values in arguments.items()}


def _dump(name: str, values: dict[str, Any]) -> dict[str, Any]:
    return {part: codec(kind_of(CALLS[name].sent[part])).dump(value) for part, value in values.items()}


def _exactly(dataset: str, number: str) -> Reference:
    return Reference.parse(f"{dataset}/plain:{number}")


def reservation_of(catalog: CatalogBackend, dataset: str) -> Reservation:
    """The reservation that ``fill`` made; one that nobody has made if it did not make this dataset."""
    for reservation in catalog.reservations.list():
        if reservation.location == PLACE.format(dataset):
            return reservation
    return Reservation(
        location=PLACE.format(dataset),
        dataset=f"{dataset}/plain",
        version="9.0.0",
        content_digest="a" * 64,
        token="5" * 32,
        is_cleaning=False,
        holders=(HOLDER,),
        found=None,
        reserved_at=HOLDER.since,
    )


def split_of(catalog: CatalogBackend, exactly: Reference) -> int:
    """The number of the first split of a version; one that no split has if there is no such version."""
    for number in range(1, 60):
        if catalog.shards.version_of(number) == exactly:
            return number
    return 999_999


def rows_of(catalog: SqlCatalog) -> dict[str, list[str]]:
    """Every row of a catalog as its database stores it, by its table; without the notes about the use of tokens."""
    rows = {}
    with catalog._engine.connect() as connection:
        for name, table in metadata.tables.items():
            columns = ", ".join(column.name for column in table.columns if column.name != "last_used_at")
            rows[name] = sorted(map(repr, connection.exec_driver_sql(f"SELECT {columns} FROM {name}")))  # noqa: S608 (names of our own tables)
    return rows


def prepare(catalog: CatalogBackend, name: str, dataset: str) -> None:
    """Make the call possible: no dataset is renamed while files of it are sent."""
    if name == "rename":
        catalog.reservations.release(f"{dataset}/plain", "9.0.0", force=True)
