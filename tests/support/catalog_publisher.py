"""A publisher in a separate process, for races and crashes: reads commands on stdin, answers on stdout.

python catalog_publisher.py race URL CONTENT      for each line (a reference): publish it, print what came of it
python catalog_publisher.py hang URL REFERENCE    publish, and stop for ever just before COMMIT
python catalog_publisher.py swap URL              for each line, "OLD NEW": move mnist@best from OLD to NEW, say who won
python catalog_publisher.py open URL              wait for a line, then open the catalog
python catalog_publisher.py upgrade URL           wait for a line, then upgrade the schema
python catalog_publisher.py hang-upgrade URL REV  upgrade to a revision, and stop for ever just before COMMIT
"""

from __future__ import annotations

import sys
from typing import Literal

import sqlalchemy as sa

from registry.catalog import open_catalog, schema
from registry.errors import RegistryError
from registry.model import Reference, Version
from support.catalog_samples import sample


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def race(url: str, content: str) -> None:
    with open_catalog(url) as catalog:
        say("ready")
        for line in sys.stdin:
            version, shards = sample(line.strip(), content=content)
            try:
                newly = catalog.publish(version, shards, promote=True, actor=content)
            except RegistryError as error:
                say(error.code)
            else:
                say("published" if newly else "already")


def swap(url: str) -> None:
    with open_catalog(url) as catalog:
        say("ready")
        for line in sys.stdin:
            old, new = line.split()
            expect: Version | Literal["none"] = "none" if old == "none" else Version.parse(old)
            try:
                catalog.aliases.set("best", Reference.parse(new), expect=expect, message="", actor=new)
            except RegistryError as error:
                say(error.code)
            else:
                say(f"moved {new}")


def stop(_connection: sa.Connection) -> None:
    say("before commit")
    sys.stdin.read()


def hang(url: str, reference: str) -> None:
    with open_catalog(url) as catalog:
        sa.event.listen(sa.Engine, "commit", stop)
        version, shards = sample(reference)
        catalog.publish(version, shards, promote=True, actor="doomed")


def open_(url: str) -> None:
    say("ready")
    sys.stdin.readline()
    try:
        open_catalog(url).close()
    except RegistryError as error:
        say(f"{error.code}: {error}")
    else:
        say("opened")


def upgrade(url: str) -> None:
    say("ready")
    sys.stdin.readline()
    say(f"{schema.upgrade(url)[1]}")


def hang_upgrade(url: str, revision: str) -> None:
    sa.event.listen(sa.Engine, "commit", stop)
    schema.upgrade(url, revision)


if __name__ == "__main__":
    commands = {
        "race": race,
        "swap": swap,
        "hang": hang,
        "open": open_,
        "upgrade": upgrade,
        "hang-upgrade": hang_upgrade,
    }
    commands[sys.argv[1]](*sys.argv[2:])
