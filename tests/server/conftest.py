"""A shared catalog with the datasets ``lab_digits`` and ``secret_digits``, which stays as it is, and copies of it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from support.issuers import AUDIENCE, LocalIssuer, confused, none_of
from support.service_calls import KEYS, fill
from support.services import TestServer, make_token

from registry.catalog import open_catalog
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogRefusedError
from registry.model import Role, new_secret
from registry.server.issuers import Binding, Issuer
from registry.server.oidc import IdTokens
from registry.server.service import Service

Copy = Callable[[], Any]


COVERING = {"covering all": ("*",), "covering it": ("lab_*",), "covering others": ("other_*", "secret_digits/none")}
"""The tokens of each role, by what they cover."""


@pytest.fixture(scope="session")
def _shared(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], str]]:
    path = Path(shutil.copy(sqlite_template, tmp_path_factory.mktemp("shared") / "catalog.db"))
    with open_catalog(path) as catalog:
        fill(catalog, "lab_digits")
        fill(catalog, "secret_digits")
        tokens = {
            (role.value, state): make_token(catalog, f"{role.value} {state}", role, *patterns)
            for role in Role
            for state, patterns in COVERING.items()
        }
        for role in Role:
            moment = timedelta(microseconds=1)
            tokens[role.value, "expired"] = make_token(catalog, f"{role.value} expired", role, expires_in=moment)
            tokens[role.value, "revoked"] = make_token(catalog, f"{role.value} revoked", role)
            catalog.access.revoke_token(tokens[role.value, "revoked"].split("_")[1], actor="root")
        tokens |= exchange_id_tokens(catalog)
    return path, tokens


def exchange_id_tokens(catalog: SqlCatalog) -> dict[tuple[str, str], str]:
    """The text of a token for each role that was exchanged for an ID token, of one that has expired since; and ID
    tokens, which are no access tokens."""
    issuer, tokens = LocalIssuer().start(), {}
    bindings = [Binding(claims={"sub": role.value}, role=role, datasets=("lab_*",)) for role in Role]
    # The tests of a process take longer than the 15 minutes that such a token usually has.
    setting = Issuer(name="local", url=issuer.url, bindings=tuple(bindings), minutes=12 * 60)
    desk = IdTokens(Service(catalog), [setting], AUDIENCE)
    for role in Role:
        for state in ("exchanged", "exchanged, expired"):
            token_id, text, digest = new_secret()
            desk.exchange(issuer.sign(sub=role.value), token_id, digest)
            tokens[role.value, state] = text
            if state == "exchanged, expired":
                with sqlite3.connect(str(catalog.file)) as connection:
                    past = "UPDATE access_token SET expires_at = created_at WHERE id = ?"
                    connection.execute(past, [token_id])
                connection.close()
        for state, id_token in {
            "ID token": issuer.sign(sub=role.value),
            "ID token, other audience": issuer.sign(sub=role.value, aud="other"),
            "ID token, alg=none": none_of(issuer.sign(sub=role.value)),
            "ID token, key confusion": confused(issuer, "PEM"),
        }.items():
            tokens[role.value, state] = id_token
            if state != "ID token":
                with pytest.raises(CatalogRefusedError):
                    desk.exchange(id_token, *new_secret()[::2])
    issuer.stop()
    return tokens


@pytest.fixture
def filled(_shared: tuple[Path, Any]) -> Path:
    """The file of the shared catalog."""
    return _shared[0]


@pytest.fixture
def tokens(_shared: tuple[Any, dict[tuple[str, str], str]]) -> dict[tuple[str, str], str]:
    """The text of each token of the shared catalog, by its role and its state."""
    return _shared[1]


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Copy:
    """Opens a fresh copy of the shared catalog."""

    numbers = count()

    @contextmanager
    def opened() -> Iterator[SqlCatalog]:
        with open_catalog(shutil.copy(filled, tmp_path / f"{next(numbers)}.db")) as catalog:
            cast("SqlCatalog", catalog).webhooks.keys = KEYS
            yield cast("SqlCatalog", catalog)

    return opened


@pytest.fixture
def shared(copy: Copy) -> Iterator[SqlCatalog]:
    """A copy of the shared catalog."""
    with copy() as catalog:
        yield catalog


@pytest.fixture(scope="session")
def server() -> Iterator[TestServer]:
    """A service, which all tests of a process share."""
    started = TestServer()
    yield started
    started.stop()
