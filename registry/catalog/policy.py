"""The table of rights: who may make each call of the catalog protocol, about what, and whether it changes the catalog.

Nothing is imported here, so that a client which only asks whether a call writes loads none of the calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

READER, PUBLISHER, MAINTAINER, ADMIN, NOBODY = "reader", "publisher", "maintainer", "admin", "nobody"
DEFAULT_CONFIG, SOME_CONFIG, EVERY_CONFIG = "default", "some", "every"


class Policy(NamedTuple):
    """Who may make a call.

    Attributes:
        role: the least role; ``nobody`` if only the server itself makes the call.
        is_write: whether it changes the catalog, so that it takes an idempotency key.
        subject: the argument that says which dataset the call is about; None if it is about the catalog. Then a token
            that does not cover every dataset gets the result without other datasets (``filters``), or is refused.
        filters: whether the result is a sequence of values of datasets.
        configs: which configs of a dataset a call that names none is about: the default one, every one, or some, which
            are those of the result.
    """

    role: str
    is_write: bool = False
    subject: str | None = None
    filters: bool = False
    configs: str = DEFAULT_CONFIG


def _read(subject: str | None = None, *, filters: bool = False, configs: str = DEFAULT_CONFIG) -> Policy:
    return Policy(READER, subject=subject, filters=filters, configs=configs)


def _write(subject: str | None, role: str = PUBLISHER, *, configs: str = DEFAULT_CONFIG) -> Policy:
    return Policy(role, is_write=True, subject=subject, configs=configs)


POLICY: Final[Mapping[str, Policy]] = {
    "access.create_token": _write(None, ADMIN),
    "access.tokens": Policy(ADMIN),
    "access.revoke_token": _write(None, ADMIN),
    "access.refusals": Policy(ADMIN),
    "access.authenticate": Policy(NOBODY),
    "access.note_refusal": Policy(NOBODY),
    "webhooks.create": _write(None, ADMIN),
    "webhooks.list": Policy(ADMIN),
    "webhooks.secret": Policy(ADMIN),
    "webhooks.remove": _write(None, ADMIN),
    "webhooks.resume": _write(None, ADMIN),
    "now": _read(),
    "find": _read("reference"),
    "find_at": _read("reference"),
    "published": _read("name"),
    "published_at": _read(filters=True),
    "published_digest": _read("name"),
    "neighbours": _read("name"),
    "standing": _read("name"),
    "versions": _read("name", filters=True),
    "sizes": _read(filters=True),
    "datasets": _read(filters=True),
    "search": _read(filters=True),
    "explain_no_hits": Policy(READER),
    "fingerprints": _read("version"),
    "attachments": _read("version"),
    "producers": _read("name", filters=True),
    "require_publisher": Policy(PUBLISHER),
    "publish": _write("version"),
    "add_fingerprints": _write("version"),
    "attach": _write("version"),
    "add_producer": _write("exactly"),
    "rename": _write("name", ADMIN, configs=EVERY_CONFIG),
    "backup": Policy(ADMIN),
    "snapshot": Policy(ADMIN),
    "aliases.list": _read("dataset", filters=True, configs=SOME_CONFIG),
    "aliases.history": _read("reference"),
    "aliases.set": _write("reference"),
    "aliases.remove": _write("reference"),
    "configs.list": _read("name", filters=True, configs=SOME_CONFIG),
    "configs.protection": _read("name"),
    "configs.set_default": _write("name", configs=EVERY_CONFIG),
    "configs.set_protection": _write("dataset", ADMIN, configs=EVERY_CONFIG),
    "experiments.list": _read(),
    "experiments.defaults_for": _read(),
    "experiments.of_version": _read("version"),
    "experiments.add": _write(None),
    "experiments.set_default": _write(None, ADMIN),
    "experiments.retire": _write(None, ADMIN),
    "lifecycle.promote": _write("reference"),
    "lifecycle.approve": _write("proposal", MAINTAINER, configs=EVERY_CONFIG),
    "lifecycle.reject": _write("proposal", MAINTAINER, configs=EVERY_CONFIG),
    "lifecycle.proposals": _read("dataset", filters=True),
    "lifecycle.deprecate": _write("reference"),
    "lifecycle.yank": _write("reference"),
    "lifecycle.drop": _write("reference", ADMIN),
    "lifecycle.undo": _write("reference", ADMIN),
    "lifecycle.describe": _write("reference"),
    "lifecycle.remove": _write("reference", ADMIN),
    "lifecycle.removals": _read("dataset", filters=True),
    "locations.add": _write("exactly"),
    "locations.remove": _write("exactly", ADMIN),
    "locations.relocate": _write("exactly", ADMIN),
    "locations.outside": _read(filters=True),
    "locations.data_dir": _read(),
    "locations.set_data_dir": _write(None, ADMIN),
    "events": _read("dataset", configs=SOME_CONFIG),
    "log.page": _read("event_filter", filters=True, configs=SOME_CONFIG),
    "log.verify": Policy(ADMIN),
    "log.num_rows": Policy(ADMIN),
    "log.correct_clock": _write(None, ADMIN),
    "reservations.reserve": _write("exactly"),
    "reservations.note_found": _write("reservation"),
    "reservations.take_over": _write("reservation"),
    "reservations.begin_cleaning": _write("reservation"),
    "reservations.end_cleaning": _write("reservation"),
    "reservations.require": Policy(PUBLISHER, subject="reservation"),
    "reservations.leave": _write("reservation"),
    "reservations.list": _read("dataset", filters=True),
    "reservations.release": _write("dataset"),
    "shards.between": _read("version"),
    "shards.find": _read("name"),
    "shards.files_of": _read("references"),
    "shards.lengths_between": _read("split_id"),
    "shards.lengths_at": _read("split_id"),
    "shards.empty_between": _read("split_id"),
    "shards.version_of": _read("split_id"),
}

READS: Final = frozenset(
    call for call, policy in POLICY.items() if not policy.is_write and policy.role in (READER, ADMIN)
)
"""The calls that only read: they neither change the catalog nor ask whether the caller may do so."""
