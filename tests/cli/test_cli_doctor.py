"""``registry doctor``: each line says what is the matter and what to do, for each kind of catalog, in bounded time."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from support.issuers import LocalIssuer, public_jwk
from support.services import TestServer, make_token
from support.sites import make_site, snapshot
from support.web_server import serve

import registry
import registry.api.doctor
from registry.catalog.sql_catalog import SqlCatalog
from registry.model import Role, new_secret

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "1GB")
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REGISTRY_TOKEN", raising=False)


@pytest.fixture
def service(digits: Cli, workspace: Path) -> Iterator[tuple[str, SqlCatalog]]:
    """The URL of a service, and its catalog."""
    server = TestServer()
    with registry.connect(workspace / "catalog.db") as catalog:
        server.service.catalog = cast("SqlCatalog", catalog.backend)
        yield server.url, server.service.catalog
        server.stop()


def lines(ran: Any) -> dict[str, tuple[str, str, str]]:
    """The level, the text and the hint of each subject, as ``registry doctor --format json`` prints them."""
    return {row["subject"]: (row["level"], row["text"], row["hint"]) for row in ran.json()["data"]}


def test_a_sound_catalog_has_a_line_for_each_check(digits: Cli, workspace: Path) -> None:
    ran = digits("doctor")
    assert ran.code == 0
    text = re.sub(r"Python .*", "Python ...", ran.out.replace(str(workspace), "~"))
    assert re.sub(r"schema \d{4}", "schema N", text) == (
        f"ok       versions: shardbook {registry.__version__}, Python ...\n"
        "ok       catalog: sqlite:///~/catalog.db answers: an SQLite file with schema N\n"
        "ok       rights: this user may read and publish\n"
        "ok       clock: the clocks of this machine and of the catalog agree\n"
        "ok       data directory: ~/datasets, which the catalog records, can be read and written\n"
        "ok       cache: ~/cache/blocks is writable: 0 files, 0 of 1,000,000,000 bytes are used\n"
    )


def test_problems_say_what_to_do_and_the_exit_code_is_1(cli: Cli, digits: Cli, workspace: Path) -> None:
    (workspace / "datasets").rename(workspace / "moved")
    ran = digits("doctor")
    assert ran.code == 1
    assert (
        f"problem  data directory: there is no folder {workspace}/datasets, which the catalog records\n"
        "         Mount its disk, or specify a copy of the files: --data-dir DIR\n"
    ) in ran.out
    moved = lines(digits("doctor", "--data-dir", str(workspace / "moved"), "--format", "json"))["data directory"]
    assert moved == ("ok", f"{workspace}/moved, which the catalog does not record, can be read and written", "")
    missing = cli("doctor", "--catalog", str(workspace / "none.db"), "--format", "json")
    assert (missing.code, [*lines(missing)]) == (1, ["versions", "catalog", "cache"])
    assert lines(missing)["catalog"] == (
        "problem",
        f"no catalog at {workspace}/none.db: no such file",
        f"To create a catalog there: registry db upgrade --catalog sqlite:///{workspace}/none.db",
    )


def test_a_clock_that_is_wrong_is_named(digits: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(seconds=90)

    monkeypatch.setattr(registry.api.doctor, "datetime", Late)
    level, text, hint = lines(digits("doctor", "--format", "json"))["clock"]
    assert (level, text) == ("warning", "the clock of this machine is 90 seconds behind that of the catalog")
    assert hint.startswith("Correct the wrong clock")


def test_a_cache_that_is_off_is_a_warning(digits: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "0")
    ran = digits("doctor", "--format", "json")
    assert (ran.code, lines(ran)["cache"][0]) == (0, "warning")
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "much")
    ran = digits("doctor", "--format", "json")
    assert (ran.code, lines(ran)["cache"][0]) == (1, "problem")


@pytest.mark.parametrize(
    ("role", "options", "level", "text"),
    [
        (Role.READER, {}, "ok", "the token ID may read, but not publish"),
        (Role.PUBLISHER, {}, "ok", "the token ID may read and publish"),
        (Role.ADMIN, {}, "ok", "the token ID of ann has the role admin and does not expire"),
        (Role.ADMIN, {"expires_in": timedelta(days=2)}, "warning", "the token ID of ann has the role admin until DAY"),
    ],
)
def test_the_rights_of_a_token_of_a_service(
    service: tuple[str, SqlCatalog],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    role: Role,
    options: Any,
    level: str,
    text: str,
) -> None:
    url, catalog = service
    token = make_token(catalog, "ann", role, **options)
    monkeypatch.setenv("REGISTRY_TOKEN", token)
    ran = cli("doctor", "--catalog", url, "--format", "json")
    rights = lines(ran)["rights"]
    assert (rights[0], re.sub(r"20.*UTC", "DAY", rights[1].replace(token.split("_")[1], "ID"))) == (level, text)
    assert token not in ran.out + ran.err
    assert re.fullmatch(rf"{url} answers: a service of shardbook \S+ with interface 1", lines(ran)["catalog"][1]), (
        lines(ran)["catalog"]
    )


def test_a_token_that_a_service_refuses_is_a_problem(
    service: tuple[str, SqlCatalog], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = cli("doctor", "--catalog", service[0], "--format", "json")
    assert (ran.code, lines(ran)["catalog"][:2]) == (
        1,
        ("problem", "the catalog refuses the request: it needs an access token"),
    )
    monkeypatch.setenv("REGISTRY_TOKEN", new_secret()[1])
    ran = cli("doctor", "--catalog", service[0], "--format", "json")
    assert (ran.code, lines(ran)["catalog"]) == (
        1,
        (
            "problem",
            "the catalog refuses the request: it does not know this token",
            "Get a token from an admin of the catalog, then: registry login URL",
        ),
    )


def test_a_site_is_read_only(digits: Cli, workspace: Path) -> None:
    for path, content in make_site(snapshot(workspace / "catalog.db")).items():
        (workspace / "www" / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / "www" / path).write_bytes(content)
    with serve(workspace / "www") as url:
        ran = digits("doctor", "--catalog", url, "--format", "json")
    assert ran.code == 0, ran.out
    assert [lines(ran)[subject][1] for subject in ("catalog", "rights", "clock", "data directory")] == [
        f"{url}/ answers: a site, which is read-only",
        "everybody who can reach the site may read it; nobody may write",
        "a site has no clock",
        f"{url}/data, which the catalog records, answers",
    ]


def test_every_kind_of_database_is_examined(cli: Cli, catalog_url: str) -> None:
    found = lines(cli("doctor", "--catalog", catalog_url, "--format", "json"))
    kind = "an SQLite file" if catalog_url.startswith("sqlite") else "a PostgreSQL database"
    assert f" answers: {kind} with schema " in found["catalog"][1]
    assert [found[subject][0] for subject in ("catalog", "rights", "clock")] == ["ok"] * 3
    if kind == "a PostgreSQL database":
        assert found["data directory"] == (
            "warning",
            "the catalog records no data directory, and none was named",
            "Record the data directory for all clients: registry config data-dir URL",
        )


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    issuer = LocalIssuer().start()
    yield issuer
    issuer.stop()


def settings(workspace: Path, issuer: LocalIssuer, client: str = "client_id: catalog") -> str:
    """The path of the configuration of a service that accepts ID tokens of an issuer."""
    path = workspace / "service.yaml"
    binding = "{claims: {email: ann@example.org}, role: reader}"
    entry = f"{{name: local, url: {issuer.url}, {client}, bindings: [{binding}]}}"
    path.write_text(
        f"catalog: {workspace}/catalog.db\npublic_url: https://catalog.example/\nissuers: [{entry}]\n", encoding="utf-8"
    )
    return str(path)


def test_the_issuers_of_a_service_are_asked(digits: Cli, cli: Cli, workspace: Path, issuer: LocalIssuer) -> None:
    issuer.keys += [public_jwk("ES256"), public_jwk("short", 1), {"kid": "odd"}]
    ran = cli("doctor", "--config", settings(workspace, issuer), "--format", "json")
    assert (ran.code, lines(ran)["issuer local"]) == (
        0,
        ("ok", f"{issuer.url} answers, its clock agrees, and it has 2 keys for ES256, RS256", ""),
    )
    assert lines(ran)["catalog"][0] == "ok"  # that of the configuration


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"is_down": True}, "the issuer does not answer at URL/.well-known/openid-configuration"),
        ({"document": {"issuer": "https://other"}}, "the discovery document names 'https://other', expected 'URL'"),
        (
            {"document": {"jwks_uri": "file:///etc/passwd"}},
            "the issuer names an address without encryption: file:///etc/passwd",
        ),
        ({"document": {"token_endpoint": None}}, "the discovery document of URL lacks token_endpoint"),
        ({"keys": []}, "URL has no key for RS256, PS256, ES256, EdDSA"),
        ({"keys": [public_jwk("short")]}, "URL has no key for RS256, PS256, ES256, EdDSA"),
        ({"keys": [public_jwk("RS256", use="enc")]}, "URL has no key for RS256, PS256, ES256, EdDSA"),
        ({"clock": 300}, "the clock of this machine is (299|300) seconds behind that of URL"),
        ({"clock": -300}, "the clock of this machine is 30[01] seconds ahead of that of URL"),
    ],
)
def test_what_an_issuer_lacks_is_a_problem(
    digits: Cli, cli: Cli, workspace: Path, issuer: LocalIssuer, changes: dict[str, Any], text: str
) -> None:
    for name, value in changes.items():
        setattr(issuer, name, value)
    ran = cli("doctor", "--config", settings(workspace, issuer), "--format", "json")
    level, problem, hint = lines(ran)["issuer local"]
    assert (ran.code, level, bool(hint)) == (1, "problem", True)
    assert re.fullmatch(text.replace("URL", issuer.url), problem)


def test_an_issuer_of_programs_needs_no_page(digits: Cli, cli: Cli, workspace: Path, issuer: LocalIssuer) -> None:
    issuer.document = {"authorization_endpoint": None, "token_endpoint": None}
    ran = cli("doctor", "--config", settings(workspace, issuer, "minutes: 5"), "--format", "json")
    assert (ran.code, lines(ran)["issuer local"][0]) == (0, "ok")


def test_the_date_of_an_answer_from_a_cache_is_that_of_its_origin(
    digits: Cli, cli: Cli, workspace: Path, issuer: LocalIssuer
) -> None:
    issuer.clock, issuer.headers = -300, {"Age": "300"}  # RFC 9111: a cache does not change Date
    ran = cli("doctor", "--config", settings(workspace, issuer), "--format", "json")
    assert (ran.code, lines(ran)["issuer local"][0]) == (0, "ok")


def test_an_issuer_that_hangs_holds_nothing_up(digits: Cli, cli: Cli, workspace: Path, issuer: LocalIssuer) -> None:
    issuer.is_hanging = threading.Event()
    ran = cli("doctor", "--config", settings(workspace, issuer), "--seconds", "0.5", "--format", "json")
    issuer.is_hanging.set()
    assert (ran.code, lines(ran)["issuer local"][1]) == (1, "no answer within 0.5 seconds")


@contextmanager
def silent_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"


def test_a_server_that_accepts_and_never_answers_holds_nothing_up(cli: Cli) -> None:
    with silent_server() as url:
        ran = cli("doctor", "--catalog", url, "--seconds", "0.5", "--format", "json")
    assert (ran.code, lines(ran)["catalog"]) == (
        1,
        ("problem", "no answer within 0.5 seconds", "Try again later. If this persists, ask its admin."),
    )
