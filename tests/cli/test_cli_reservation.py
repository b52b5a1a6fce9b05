"""``registry reservation``: what people and programs see of places in object stores that a publisher holds."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from registry.catalog import Holder, open_catalog
from registry.model import Reference
from registry.storage.names import Owner

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)
PLACE = "s3://bucket/mnist/1.0.0"


@pytest.fixture
def held(cli: Cli, workspace: Path) -> Holder:
    """The holder of a reservation of mnist:1.0.0, a process of another machine."""
    cli("db", "upgrade")
    far = replace(Owner.this_process(), host="far", machine="far")
    holder = replace(Holder.of_this_process("ann"), owner=far)
    with open_catalog(workspace / "catalog.db") as catalog:
        catalog.reservations.reserve(PLACE, Reference.parse("mnist:1.0.0"), "a" * 64, holder)
        (reservation,) = catalog.reservations.list()
    return reservation.holders[
        0
    ]  # since the time of the catalog, which may be a second later than that of this process


def test_reservations_are_listed(cli: Cli, held: Holder) -> None:
    head, row = cli("reservation", "list").out.splitlines()
    assert head.split() == ["VERSION", "HELD", "BY", "STATE", "SINCE", "(UTC)", "PLACE"]
    assert row.startswith(f"mnist:1.0.0  ann (process {held.owner.pid} on far, since ")
    assert row.endswith(f"  in use  {held.since:%Y-%m-%d %H:%M}  {PLACE}")
    (one,) = cli("reservation", "list", "mnist", "--format", "json").json()["data"]
    assert one == {
        "dataset": "mnist",
        "version": "1.0.0",
        "location": PLACE,
        "content_digest": f"sha256:{'a' * 64}",
        "is_cleaning": False,
        "reserved_at": held.since.isoformat(),
        "holders": [
            {
                "actor": "ann",
                "host": "far",
                "pid": held.owner.pid,
                "since": held.since.isoformat(),
                "is_dead": False,
            }
        ],
    }


def test_a_reservation_is_released(cli: Cli, held: Holder) -> None:
    dry = cli("reservation", "release", "mnist:1.0.0", "--dry-run")
    assert dry.out == f"would release mnist:1.0.0: it was held by {held}, {PLACE}\n"
    done = cli("reservation", "release", "mnist:1.0.0", "--format", "json").json()
    assert done["schema"] == "registry.reservation.release/1"
    assert done["data"]["dry_run"] is False
    assert "nobody   left   " in cli("reservation", "list").out
    missing = cli("reservation", "release", "mnist:2.0.0")
    assert (missing.code, missing.err) == (
        3,
        "error: mnist:2.0.0 has no reservation\nhint: To list reservations: registry reservation list\n",
    )
    vague = cli("reservation", "release", "mnist")
    assert vague.code == 2
    assert vague.err.startswith("error: mnist does not name one version by its number\nhint: Write mnist:1.0.0. ")


def test_a_folder_of_this_machine_is_not_cleared(empty: Cli, tmp_path: Path) -> None:
    ran = empty("reservation", "clear", "mnist:1.0.0")
    assert ran.code == 2
    assert (
        "is on this machine, but reservations exist only in object stores\nhint: Move or remove the folder yourself.\n"
        in ran.err
    )


def test_an_empty_place_is_cleared_of_nothing(empty: Cli) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    ran = empty("reservation", "clear", "mnist:1.0.0", "--data-dir", url, "--dry-run")
    assert ran.code == 0, ran.err
    assert ran.out == f"would move 0 files of {url}/mnist/1.0.0 to {url}/mnist/leftover.<random>_1.0.0\n"
