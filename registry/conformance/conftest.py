"""The tokens and the datasets of a run. At the end, tokens are revoked, and versions are dropped and removed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

import registry
from registry.catalog.service import ServiceCatalog
from registry.catalog.service_index import DATA_PATH
from registry.conformance.peer import Peer, fail
from registry.errors import ConflictError, NotFoundError, RegistryError
from registry.model import Reference, Role, new_secret

TOKEN = "REGISTRY_TOKEN"  # noqa: S105 (the name of the variable)
NUM_EXAMPLES = 40


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Ignore the files in every run that is not about a service."""
    return None if hasattr(config.option, "admin_token") else True


@pytest.fixture(scope="session")
def peer(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """The service. The client gets its own cache and data folder."""
    url = pytestconfig.getoption("--url")
    if not url:
        raise pytest.UsageError("--url is missing: the URL of the service")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("REGISTRY_CACHE_DIR", "XDG_DATA_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        for name in ("REGISTRY_CATALOG", "REGISTRY_ACTOR"):
            patch.delenv(name, raising=False)
        yield Peer(url)


@dataclass
class Run:
    """The tokens of a run, by their names, and the names of its datasets.

    Attributes:
        peer: the service.
        admin: the admin token of the run.
        prefix: the prefix of the names of datasets.
        tokens: ``reader``, ``publisher`` and ``admin`` cover all; with ``of open`` after the role, ``prefix + open*``.
        made: the ids of the tokens that were created.
        published: the versions that were published.
    """

    peer: Peer
    admin: str
    prefix: str = field(default_factory=lambda: f"conformance_{secrets.token_hex(4)}_")
    tokens: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)

    def client(self, token: str) -> ServiceCatalog:
        """The client of the protocol, with one of the tokens."""
        return ServiceCatalog(self.peer.url, token=lambda _: self.tokens.get(token, token))

    def make_token(self, name: str, role: Role, *patterns: str, expires_in: timedelta | None = None) -> str:
        """The text of a new token."""
        token_id, text, digest = new_secret()
        with self.client(self.admin) as client:
            datasets = patterns or ("*",)
            client.access.create_token(
                token_id, digest, self.prefix + name, role, datasets=datasets, expires_in=expires_in, actor=""
            )
        self.made.append(token_id)
        return text

    def revoke(self, token_id: str) -> None:
        """Revoke a token."""
        with self.client(self.admin) as client:
            client.access.revoke_token(token_id, actor="")

    def connect(self, token: str = "publisher") -> registry.Catalog:  # noqa: S107 (a name, not a token)
        """The catalog through the client, with one of the tokens."""
        os.environ[TOKEN] = self.tokens[token]
        return registry.connect(self.peer.url)

    def publish(self, name: str, num_examples: int = NUM_EXAMPLES) -> str:
        """Publish the version 1.0.0 of a dataset, whose name follows the prefix; returns its reference."""
        reference = f"{self.prefix}{name}:1.0.0"
        self.published.append(reference)
        with self.connect() as catalog:
            try:
                catalog.add({"number": range(num_examples)}, self.prefix + name)
            except RegistryError as error:
                fail(f"a publisher must be able to publish through the client, but: {error} {error.hint}")
        return reference


@pytest.fixture(scope="session")
def login(pytestconfig: pytest.Config, peer: Peer) -> str | None:
    """The token of the person who runs the suite; None if there is none, and everybody may read."""
    text: str | None = pytestconfig.getoption("--admin-token") or os.environ.get(TOKEN) or None
    answer = peer.call("now", {}, text)
    if answer.status == 401:
        pytest.skip("needs a token: --admin-token, or REGISTRY_TOKEN")
    answer.expect(200, why="every valid token may read the clock")
    return text


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config, peer: Peer, login: str | None) -> Iterator[Run]:
    """The tokens of the run, and its datasets ``open`` and ``secret``."""
    if pytestconfig.getoption("--read-only"):
        pytest.skip("changes the catalog, but the run is --read-only")
    if login is None or peer.call("access.tokens", {}, login).status == 403:
        pytest.skip("needs an admin token: --admin-token, or REGISTRY_TOKEN")
    run, before = Run(peer, login), os.environ.get(TOKEN)
    try:
        for role in Role:
            run.tokens[role.value] = run.make_token(role.value, role)
            run.tokens[f"{role.value} of open"] = run.make_token(f"{role.value} of open", role, f"{run.prefix}open*")
        run.tokens["expired"] = run.make_token("expired", Role.ADMIN, expires_in=timedelta(microseconds=1))
        run.tokens["revoked"] = run.make_token("revoked", Role.ADMIN)
        run.revoke(run.made[-1])
        for name in ("open", "secret"):
            run.publish(name)
        yield run
    finally:
        _clear(run)
        os.environ.pop(TOKEN, None)
        os.environ |= {} if before is None else {TOKEN: before}


def _clear(run: Run) -> None:
    try:
        with run.client(run.admin) as client:
            for reference in map(Reference.parse, run.published):
                with suppress(NotFoundError):  # its publication has failed
                    with suppress(ConflictError):  # a check has dropped it
                        client.lifecycle.drop(reference, "a check of conformance has ended", actor="")
                    client.lifecycle.remove(reference, grace=timedelta(0), force=True, actor="")
    finally:
        for token_id in run.made:
            run.revoke(token_id)


@pytest.fixture(scope="session")
def shard(run: Run) -> tuple[str, str, int]:
    """The path, the sha256 and the size of the first shard of ``open``, as a service has them that offers files."""
    with run.client("reader") as client:
        data_dir = client.locations.data_dir()
        if data_dir is None or not data_dir.place.endswith(f"/{DATA_PATH}"):
            pytest.skip("clients of this service use the data directory without it")
        version = client.find(f"{run.prefix}open")
        rows = client.shards.between(version, "train", 0, 1)
    if not rows:
        fail("the version that was published has no shard")
    place = f"{version.location.removeprefix(data_dir.place).lstrip('/')}/{version.splits[0].filename(0)}"
    return f"{DATA_PATH}/{place}", rows[0].sha256, rows[0].num_bytes
