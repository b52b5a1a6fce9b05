"""The names of renamed datasets, as the log has them: events keep the name that a dataset had when they happened.

Migrations that restore rows from the log find the dataset of an event by its present name. An event that nobody can
read is skipped: ``registry log verify`` names it.
"""

from __future__ import annotations

import json

import sqlalchemy as sa

RENAMES = "SELECT details_json FROM event WHERE action = 'rename' ORDER BY id"


def read_names(connection: sa.Connection) -> dict[str, list[str]]:
    """The names of each renamed dataset, oldest first, by its present name."""
    names: dict[str, list[str]] = {}
    for text in connection.execute(sa.text(RENAMES)).scalars().all():
        try:
            details = json.loads(text)
            before, after = details["before"], details["after"]
            if not (isinstance(before, str) and isinstance(after, str) and before and after):
                raise ValueError("not a name")
        except (KeyError, ValueError, TypeError, RecursionError):
            continue
        former = names.pop(before, [before])
        names[after] = [*former, *([] if after in former else [after])]
    return names


def read_present_names(connection: sa.Connection) -> dict[str, str]:
    """The present name of each renamed dataset, by every name that it has had."""
    return {name: present for present, names in read_names(connection).items() for name in names}


def in_present(present: dict[str, str], dataset: str) -> str:
    """``name[/config]`` in an event, by its present name; ``present`` are the names of ``read_present_names``."""
    name, slash, config = dataset.partition("/")
    return present.get(name, name) + slash + config
