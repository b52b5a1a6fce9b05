"""A publisher in a process of its own, for races and crashes: told what to do on stdin, answers on stdout.

python catalog_publisher.py race URL CONTENT      for each line (a reference): publish it, print what came of it
python catalog_publisher.py hang URL REFERENCE    publish, and stop for ever just before COMMIT
python catalog_publisher.py open URL              wait for a line, then open the catalog
"""

from __future__ import annotations

import sys

import sqlalchemy as sa
from catalog_samples import sample

from registry.catalog import open_catalog, schema
from registry.errors import RegistryError


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


def hang(url: str, reference: str) -> None:
    def stop(_connection: sa.Connection) -> None:
        say("before commit")
        sys.stdin.read()

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


if __name__ == "__main__":
    {"race": race, "hang": hang, "open": open_, "upgrade": upgrade}[sys.argv[1]](*sys.argv[2:])
