"""What a service sets for its clients, who takes it, and what no server can set."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from support.services import TestServer, make_token

import registry
from registry.api.doctor import Level, examine
from registry.api.locations import team_settings
from registry.api.logins import TeamSettings
from registry.catalog import open_catalog
from registry.catalog.service_index import CLIENT_SETTINGS, client_settings, make_service_index
from registry.catalog.sql_catalog import SqlCatalog
from registry.cli.main import run
from registry.environment import read_number, read_variable
from registry.errors import RegistryWarning, UsageError
from registry.server.config import ServiceConfig, load_config

SETTINGS = {"cache_bytes": "3MB", "tries": 2, "announcement": "The catalog is read-only on Sunday."}
VARIABLES = [setting.variable for setting in CLIENT_SETTINGS.values() if setting.variable]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is set, and nobody has logged in."""
    for name in (*VARIABLES, "REGISTRY_CATALOG", "REGISTRY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("registry.api.logins._keyring", lambda: None)
    return tmp_path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestServer]:
    """A service that sets ``SETTINGS``."""
    started = TestServer(ServiceConfig(requests_per_minute=0, failed_logins_per_minute=0, clients=SETTINGS))
    with open_catalog(tmp_path / "catalog.db") as opened:
        started.service.catalog = cast("SqlCatalog", opened)
        yield started
    started.stop()


def log_in(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(make_token(server.service.catalog, "ann")))
    assert run(["login", server.url]) == 0


def age(hours: float) -> None:
    """Let what is kept be so old."""
    path = team_settings().file.path
    text = path.read_text()
    moment = json.loads(text)[next(iter(json.loads(text)))]["read_at"]
    path.write_text(text.replace(moment, (datetime.now(UTC) - timedelta(hours=hours)).isoformat()))


def test_a_login_takes_the_settings_and_a_variable_wins(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_number("REGISTRY_TRIES", 8) == 8
    log_in(server, monkeypatch)
    assert f"note: {server.url} announces: The catalog is read-only on Sunday." in capsys.readouterr().err
    assert read_number("REGISTRY_TRIES", 8) == 2
    assert read_variable("REGISTRY_CACHE_BYTES") == "3MB"
    assert registry.cache().usage().max_bytes == 3_000_000
    monkeypatch.setenv("REGISTRY_TRIES", "5")
    assert read_number("REGISTRY_TRIES", 8) == 5
    assert team_settings().file.path.stat().st_mode & 0o777 == 0o600

    found = {finding.subject: finding for finding in examine(server.url)}["team settings"]
    assert (found.level, found.text) == (
        Level.OK,
        f"of {server.url}: cache_bytes 3MB, tries 2 (REGISTRY_TRIES=5 is used), announcement "
        "The catalog is read-only on Sunday.",
    )
    assert run(["logout", server.url]) == 0
    assert read_variable("REGISTRY_CACHE_BYTES") == ""


def test_the_settings_are_those_of_the_usual_catalog(
    server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(server, monkeypatch)
    for usual, expected in ((server.url, "2"), (str(tmp_path / "own.db"), ""), ("https://other.example/", "")):
        monkeypatch.setenv("REGISTRY_CATALOG", usual)
        assert read_variable("REGISTRY_TRIES") == expected
    monkeypatch.delenv("REGISTRY_CATALOG")
    team_settings().file.change("https://other.example/", {"settings": {"tries": "7"}, "read_at": "2026-01-01"})
    assert read_variable("REGISTRY_TRIES") == ""  # of two, nobody knows which one is meant
    monkeypatch.setenv("REGISTRY_CATALOG", "https://other.example/")
    assert read_variable("REGISTRY_TRIES") == "7"


def test_a_client_asks_again_after_an_hour(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(server, monkeypatch)
    monkeypatch.setattr(
        "registry.api.logins.read_service_index",
        lambda _: json.loads(make_service_index("x", {"tries": 4, "announcement": "Bye."})),
    )
    with registry.connect(server.url) as catalog:
        catalog.datasets()
    assert read_variable("REGISTRY_TRIES") == "2"
    age(hours=1.1)
    capsys.readouterr()
    assert run(["list", "--catalog", server.url]) == 0
    assert f"note: {server.url} announces: Bye." in capsys.readouterr().err
    assert read_variable("REGISTRY_TRIES") == "4"
    age(hours=2)
    assert run(["list", "--catalog", server.url]) == 0
    assert "announces" not in capsys.readouterr().err  # it was announced before


def test_a_service_without_a_login_sets_nothing(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", make_token(server.service.catalog, "ci"))
    with registry.connect(server.url) as catalog:
        catalog.datasets()
    assert not team_settings().file.path.exists()
    assert read_variable("REGISTRY_TRIES") == ""


HOSTILE: dict[str, Any] = {
    "cache_dir": "/etc",
    "catalog": "https://evil.example/",
    "allowed_hosts": "evil.example",
    "token": "shb_x",
    "REGISTRY_CACHE_DIR": "/etc",
    "cache_bytes": "1GB\nREGISTRY_CACHE_DIR=/etc",
    "tries": True,
    "connect_timeout": 0,
    "read_timeout": "nan",
    "retry_timeout": 1e300,
    "publish_timeout": [1],
    "announcement": "\x1b[2Jyou are root",
    "least_release": {"a": 1},
}


def test_no_server_chooses_places_hosts_or_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client_settings({"clients": HOSTILE}) == {}
    assert client_settings({"clients": [1]}) == client_settings({}) == {}
    settings = TeamSettings(tmp_path / "user", "https://evil.example/")
    settings.file.change("https://evil.example/", {"settings": HOSTILE, "read_at": "x"})
    assert settings.current() == ("https://evil.example/", {})
    monkeypatch.setattr("registry.api.logins.read_service_index", lambda _: {"clients": HOSTILE | {"tries": 3}})
    settings.keep("https://evil.example/")
    assert json.loads(settings.file.path.read_text())["https://evil.example/"]["settings"] == {"tries": "3"}
    names = ("REGISTRY_TRIES", "REGISTRY_CACHE_DIR", "REGISTRY_CATALOG")
    assert [settings.default(name) for name in names] == ["3", "", ""]
    for content in ("[]", "{", '{"https://evil.example/": 1}'):
        settings.file.path.write_text(content)
        os.utime(settings.file.path, ns=(0, hash(content) % 2**40))
        assert settings.current() in [("", {})]


def test_an_older_client_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TeamSettings(tmp_path, "https://catalog.example/")
    for least in ("99.0", "0.1"):
        index = {"clients": {"least_release": least}}
        monkeypatch.setattr("registry.api.logins.read_service_index", lambda _, index=index: index)
        if least == "0.1":
            settings.keep("https://catalog.example/")  # a warning would be an error
        else:
            with pytest.warns(RegistryWarning, match=r"requires shardbook 99\.0 or later, but this is "):
                settings.keep("https://catalog.example/")


def test_the_settings_of_a_service_are_checked_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("clients:\n  tries: 3\n  cache_bytes: 500GB\n  announcement: Closed on Sunday.\n")
    assert load_config(path).clients == {"tries": 3, "cache_bytes": "500GB", "announcement": "Closed on Sunday."}
    for text, expected in (
        ("clients:\n  tries: many\n", "expected tries: a number from 1 to 99"),
        ("clients:\n  cache_dir: /data\n", f"expected a map of {', '.join(CLIENT_SETTINGS)}"),
        ("clients: none\n", "expected a map of announcement"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=f"{path}, line 1: clients is .*{expected}"):
            load_config(path)
    monkeypatch.setenv("REGISTRY_SERVE_CLIENTS", '{"tries": 4}')
    assert load_config().clients == {"tries": 4}
    monkeypatch.setenv("REGISTRY_SERVE_CLIENTS", "{")
    with pytest.raises(UsageError, match="REGISTRY_SERVE_CLIENTS is"):
        load_config()
