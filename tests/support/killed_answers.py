"""Sets an alias under an idempotency key, and ends without a word at a place: ``URL KEY PLACE``.

Places: ``call`` (before the effect), ``effect`` (after it), ``commit`` (before COMMIT), ``answer`` (after COMMIT), or
``never``: then it asks until it has the answer, and prints it with whether it was kept.
"""

from __future__ import annotations

import os
import sys
import time

import sqlalchemy as sa

from registry.catalog.sql_catalog import SqlCatalog, open_sql_catalog
from registry.errors import KeyRunningError
from registry.model import Reference


def set_alias(catalog: SqlCatalog) -> bytes:
    change = catalog.aliases.set("paper", Reference.parse("mnist:1.0.0"), expect=None, message="", actor="ann")
    return f"{change.before} -> {change.after}".encode()


def ask(catalog: SqlCatalog, key: str, place: str) -> tuple[bytes, int, bool]:
    def make() -> bytes:
        if place == "call":
            os._exit(9)
        answer = set_alias(catalog)
        if place == "effect":
            os._exit(9)
        if place == "commit":
            sa.event.listen(catalog._engine, "commit", lambda _: os._exit(9))
        return answer

    result = catalog.answer_once(key, "ann", "aliases.set", "0" * 64, make)
    if place == "answer":
        os._exit(9)
    return result


def main() -> None:
    url, key, place = sys.argv[1:]
    with open_sql_catalog(url) as catalog:
        while True:
            try:
                print(*ask(catalog, key, place))  # noqa: T201 (the test reads it)
                return
            except KeyRunningError:
                time.sleep(0.01)


if __name__ == "__main__":
    main()
