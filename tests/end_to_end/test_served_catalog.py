"""The Python API over a service: ``registry.connect("http://...")`` with a token."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import urllib3
from support import warm_python
from support.services import CuttingProxy, TestServer, cutting_proxy, make_token

import registry
from registry.catalog import DataDirectory, open_catalog
from registry.catalog.service.calls import CALLS
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import (
    CatalogNotFoundError,
    CatalogPermissionError,
    CatalogRefusedError,
    CatalogUnavailableError,
    CatalogUnavailableWarning,
    DataDirectoryMissingError,
    DatasetNotFoundError,
    KeyReusedError,
    SiteHistoryError,
    UsageError,
)
from registry.model import Role
from registry.storage.network import Limits

ROWS = [{"number": number} for number in range(100)]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    started = TestServer()
    yield started
    started.stop()


@pytest.fixture
def behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: TestServer) -> Iterator[SqlCatalog]:
    """The catalog behind the service. The client has a token of ann, a publisher."""
    monkeypatch.setenv("REGISTRY_CACHE_BYTES", "10MB")
    monkeypatch.setenv("REGISTRY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with open_catalog(tmp_path / "catalog.db") as opened:
        server.service.catalog = cast("SqlCatalog", opened)
        place = str(tmp_path / "data")
        opened.locations.set_data_dir(DataDirectory(recorded=place, place=place), actor="root")
        monkeypatch.setenv("REGISTRY_TOKEN", make_token(opened, "ann", Role.PUBLISHER))
        yield server.service.catalog


@pytest.fixture
def proxy(server: TestServer) -> Iterator[CuttingProxy]:
    """The client talks to it: it records requests, and loses answers."""
    with cutting_proxy(server.url) as started:
        yield started


def requests(proxy: CuttingProxy) -> list[str]:
    """The paths that were requested since the last call."""
    result = [path for path, _ in proxy.seen]
    proxy.seen.clear()
    return result


def test_data_is_added_found_sliced_read_pinned_and_verified(
    behind: SqlCatalog, server: TestServer, tmp_path: Path
) -> None:
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        assert str(catalog.add(ROWS, "numbers").reference) == "numbers:1.0.0"
        assert str(catalog.add(ROWS[1:], "numbers").reference) == "numbers:2.0.0"
        dataset = catalog.dataset("numbers:1.0.0")
        assert dataset.resolve("train[:10%]").num_examples == 10
        assert sorted(int(example["number"]) for example in dataset.read("train")) == list(range(100))
        assert len(dataset.pin("train[:10%]")["train"].read()) == 10
        assert catalog.verify_all().failed == ()
        assert [event.action for event in catalog.log()] == ["data-dir", "publish", "publish"]
        assert [event.described_actor.partition(" ")[0] for event in catalog.log()] == ["root", "ann", "ann"]
        assert repr(catalog) == f"<Catalog {server.url}, data in {tmp_path / 'data'}>"
    assert behind.log.verify().is_sound


def test_the_client_cannot_say_who_it_is(
    behind: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_ACTOR", "root")
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        catalog.add(ROWS, "numbers")
    assert {event.actor for event in behind.log.page(_any(), after=1)} == {"ann"}
    assert behind.find("numbers").published_by == "ann"


def _any() -> registry.catalog.EventFilter:
    return registry.catalog.EventFilter()


def test_an_exact_version_is_looked_up_without_a_request(
    behind: SqlCatalog, proxy: CuttingProxy, tmp_path: Path
) -> None:
    with registry.connect(proxy.url, data_dir=tmp_path / "data") as catalog:
        assert catalog.add(ROWS, "numbers").reference.name == "numbers"
        assert requests(proxy)[0] == "site.json"
        before = catalog.dataset("numbers:1.0.0")
        assert "api/v1/find" in requests(proxy)
    with registry.connect(proxy.url) as catalog:
        assert catalog.dataset("numbers:1.0.0").facts == before.facts
        assert requests(proxy) == []
        catalog.dataset("numbers")
        assert requests(proxy) == ["api/v1/log.page", "api/v1/find"]


def test_a_change_by_this_machine_is_seen_at_once(behind: SqlCatalog, server: TestServer, tmp_path: Path) -> None:
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        catalog.add(ROWS, "numbers")
        assert catalog.dataset("numbers:1.0.0").facts.state == "supported"
        catalog.lifecycle.deprecate("numbers:1.0.0", reason="old")
        assert catalog.dataset("numbers:1.0.0").facts.state == "deprecated"
    with registry.connect(server.url) as catalog:
        assert catalog.dataset("numbers:1.0.0").facts.state == "deprecated"


def test_an_exact_version_is_known_when_the_service_is_gone(
    behind: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    with cutting_proxy(server.url) as proxy, registry.connect(proxy.url, data_dir=tmp_path / "data") as catalog:
        catalog.add(ROWS, "numbers")
        facts = catalog.dataset("numbers:1.0.0").facts
    monkeypatch.setattr("registry.catalog.web._FRESH_SECONDS", 1e-9)
    with registry.connect(proxy.url) as catalog:
        with pytest.warns(CatalogUnavailableWarning, match="numbers:1.0.0 is as this machine looked it up at"):
            dataset = catalog.dataset("numbers:1.0.0")
        assert dataset.facts == facts
        assert sorted(int(example["number"]) for example in dataset.read("train")) == list(range(100))
        with pytest.raises(CatalogUnavailableError):
            catalog.dataset("numbers")


def test_a_lost_answer_makes_one_version(behind: SqlCatalog, proxy: CuttingProxy, tmp_path: Path) -> None:
    proxy.lose_first_answers()
    with registry.connect(proxy.url, data_dir=tmp_path / "data") as catalog:
        assert str(catalog.add(ROWS, "numbers").reference) == "numbers:1.0.0"
    assert [event.action for event in behind.log.page(_any())] == ["data-dir", "publish"]


def test_a_service_whose_log_was_rolled_back_is_refused(behind: SqlCatalog, server: TestServer, tmp_path: Path) -> None:
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        catalog.add(ROWS, "numbers")
    with registry.connect(server.url) as catalog:
        catalog.dataset("numbers")  # remembers the end of the log
    with open_catalog(tmp_path / "other.db") as other:
        _copy_token(behind, cast("SqlCatalog", other))
        server.service.catalog = cast("SqlCatalog", other)
        with registry.connect(server.url) as catalog, pytest.raises(SiteHistoryError, match="rolled back to event 0"):
            catalog.dataset("numbers")


def _copy_token(source: SqlCatalog, target: SqlCatalog) -> None:
    from registry.model import digest_of

    text = os.environ["REGISTRY_TOKEN"]
    digest = digest_of(text)
    token = source.access.authenticate(digest)
    target.access.create_token(token.id, digest, token.name, token.role, actor="root")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("", "needs an access token"), ("expired", "has expired or was revoked"), ("unknown", "does not know this token")],
)
def test_tokens_that_do_not_count_are_refused(
    behind: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    if kind == "expired":
        text = make_token(behind, "old", expires_in=timedelta(microseconds=1))
    elif kind == "unknown":
        with open_catalog(tmp_path / "other.db") as other:
            text = make_token(other, "eve")
    else:
        text = ""
    monkeypatch.setenv("REGISTRY_TOKEN", text)
    with registry.connect(server.url) as catalog, pytest.raises(CatalogRefusedError, match=reason):
        catalog.datasets()


def test_a_text_that_is_no_token_is_not_sent(
    behind: SqlCatalog, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "hunter2hunter2")
    with registry.connect(proxy.url) as catalog, pytest.raises(UsageError, match="not a valid access token") as caught:
        catalog.datasets()
    assert "hunter2hunter2" not in str(caught.value)
    assert requests(proxy) == ["site.json"]


def test_a_token_is_not_sent_without_encryption_to_another_machine() -> None:
    from registry.catalog.service import ServiceCatalog

    with pytest.raises(UsageError, match=r"is not sent to http://catalog\.example/"):
        ServiceCatalog("http://catalog.example/", token=lambda _: "shb_0123456789ab_x").now()


def test_a_token_for_some_datasets_sees_only_those(
    behind: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        for name in ("lab_numbers", "secret_numbers"):
            catalog.add(ROWS, name)
    monkeypatch.setenv("REGISTRY_TOKEN", make_token(behind, "bob", Role.PUBLISHER, "lab_*"))
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        assert [summary.dataset for summary in catalog.datasets()] == ["lab_numbers"]
        assert {event.dataset for event in catalog.log()} == {"", "lab_numbers"}
        messages = []
        for name in ("secret_numbers", "absent_numbers", "digits"):
            with pytest.raises(DatasetNotFoundError) as caught:
                catalog.dataset(name)
            messages.append(str(caught.value).replace(name, "NAME") + str(caught.value.hint))
        assert (
            messages
            == ["no dataset 'NAME' that this token coversThe token covers lab_*. To list these datasets: registry list"]
            * 3
        )
        with pytest.raises(CatalogPermissionError, match="covers only lab_"):
            catalog.lifecycle.deprecate("secret_numbers:1.0.0", reason="bad")
        catalog.add(ROWS[:5], "lab_more")
    monkeypatch.setenv("REGISTRY_TOKEN", make_token(behind, "eve", Role.READER))
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        with pytest.raises(CatalogPermissionError) as refused:
            catalog.add(ROWS, "lab_less")
        reason = "this needs the role publisher, but the token has the role reader"
        assert str(refused.value) == f"eve may not publish: {reason}"
    assert behind.find("lab_more").published_by == "bob"


def test_a_data_directory_has_to_be_named_as_for_every_server(
    behind: SqlCatalog, server: TestServer, tmp_path: Path
) -> None:
    with open_catalog(tmp_path / "other.db") as other:
        _copy_token(behind, cast("SqlCatalog", other))
        server.service.catalog = cast("SqlCatalog", other)
        with registry.connect(server.url) as catalog, pytest.raises(DataDirectoryMissingError):
            catalog.add(ROWS, "numbers")
        refusal = pytest.raises(CatalogPermissionError, match="only an admin may set the data directory")
        with registry.connect(server.url, data_dir=tmp_path / "data") as catalog, refusal:
            catalog.add(ROWS, "numbers")


def test_a_pickled_dataset_opens_the_service_again_without_the_token_in_it(
    behind: SqlCatalog, server: TestServer, tmp_path: Path
) -> None:
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        catalog.add(ROWS, "numbers")
        content = pickle.dumps(catalog)
    assert os.environ["REGISTRY_TOKEN"].encode() not in content
    with pickle.loads(content) as again:  # noqa: S301 (made above)
        assert again.dataset("numbers").facts.version == registry.Version(1, 0, 0)


def test_the_client_needs_neither_sqlalchemy_nor_a_large_http_library(behind: SqlCatalog, server: TestServer) -> None:
    with registry.connect(server.url) as catalog:
        catalog.datasets()  # this machine knows that it is a service
    program = (
        "import sys, registry\n"
        f"catalog = registry.connect({server.url!r})\n"
        "print(len(catalog.datasets()))\n"
        "print([name for name in ('sqlalchemy', 'alembic', 'httpx', 'requests', 'fsspec', 'numpy') "
        "if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "0\n[]\n", result.stderr


def test_login_keeps_a_token_for_one_service(
    behind: SqlCatalog, server: TestServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = os.environ["REGISTRY_TOKEN"]
    monkeypatch.delenv("REGISTRY_TOKEN")
    command = [sys.executable, "-m", "registry"]
    run = warm_python.run([*command, "login", server.url], input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (file,) = tmp_path.glob("home/shardbook/services/tokens.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert text not in run.stdout + run.stderr
    with registry.connect(server.url) as catalog:
        assert catalog.datasets() == ()
    wrong = warm_python.run([*command, "login", server.url], input="x" * 70, capture_output=True, text=True)
    assert (wrong.returncode, "not a valid access token" in wrong.stderr) == (2, True)
    elsewhere = [*command, "login", f"{server.url}elsewhere"]  # a page of the service, which asks to sign in
    wrong = warm_python.run(elsewhere, input=text, capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (
        1,
        f"error: {server.url}elsewhere/ is not a service of a catalog: the server answered 303\n"
        "hint: Check the URL. It is the one that `registry serve` prints, or its setting `public_url`.\n",
    )
    run = warm_python.run([*command, "logout", server.url], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    with registry.connect(server.url) as catalog, pytest.raises(CatalogRefusedError):
        catalog.datasets()


def test_a_wrong_path_of_a_service_is_neither_a_service_nor_a_site(behind: SqlCatalog, server: TestServer) -> None:
    with registry.connect(f"{server.url}wrong/") as catalog, pytest.raises(CatalogNotFoundError) as caught:
        catalog.datasets()
    assert str(caught.value) == (
        f"there is neither a service nor a site at {server.url}wrong/: the server answers something else than site.json"
    )
    assert str(caught.value.hint).startswith("Check the URL, also its path.")


def test_a_refusal_says_in_words_what_was_tried_and_which_token_may(
    behind: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.connect(server.url, data_dir=tmp_path / "data") as catalog:
        catalog.add(ROWS, "numbers")
        with pytest.raises(CatalogPermissionError) as caught:
            catalog.lifecycle.drop("numbers:1.0.0", reason="wrong")
        assert str(caught.value) == (
            "ann may not hide a version from every look-up: this needs the role admin, but the token has the role "
            "publisher"
        )
        assert str(caught.value.hint) == (
            "Ask an admin of the catalog for a token with more rights: registry token create NAME --role admin"
        )
        monkeypatch.setenv("REGISTRY_TOKEN", make_token(behind, "bob", Role.PUBLISHER, "lab_*"))
    with registry.connect(server.url) as catalog, pytest.raises(CatalogPermissionError) as caught:
        catalog.lifecycle.deprecate("numbers:1.0.0", reason="old")
    assert str(caught.value) == (
        "bob may not mark a version as deprecated: it would change numbers, and this token covers only lab_*"
    )
    assert str(caught.value.hint).endswith("registry token create NAME --role publisher --dataset numbers")


def test_every_call_has_words_for_a_refusal() -> None:
    refused = [call for call in CALLS.values() if call.policy.role in ("publisher", "admin")]
    assert len(refused) > 30
    for call in refused:
        assert re.fullmatch(r"[a-z][^`_.]{3,100}", call.action), call.action


def test_a_kept_answer_is_for_the_token_that_asked(behind: SqlCatalog, server: TestServer) -> None:
    """Two tokens may have the same name, and one of them may cover less."""
    make_token(behind, "ann", Role.PUBLISHER, "lab_*")
    first, other = behind.access.tokens()
    values = {"name": "flag", "description": "About it."}
    for was_replayed in (False, True):
        answered = server.service.answer(first, "experiments.add", values, key="key", request_id="")
        assert answered.was_replayed == was_replayed
    whole = replace(other, datasets=("*",))
    with pytest.raises(KeyReusedError):
        server.service.answer(whole, "experiments.add", values, key="key", request_id="")


def test_a_known_version_is_asked_for_twice_and_then_not_again_for_a_while(
    behind: SqlCatalog, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[float] = []
    monkeypatch.setattr("registry.catalog.web._FRESH_SECONDS", 1e-9)
    with cutting_proxy(server.url) as proxy:
        with registry.connect(proxy.url, data_dir=tmp_path / "data") as catalog:
            catalog.add(ROWS, "numbers")
            catalog.dataset("numbers:1.0.0")
        proxy.cut = lambda _: bool(attempts.append(time.monotonic())) or True
        with registry.connect(proxy.url) as catalog:
            with pytest.warns(CatalogUnavailableWarning):
                dataset = catalog.dataset("numbers:1.0.0")
            assert dataset.shards("train")
            with pytest.warns(CatalogUnavailableWarning):
                catalog.dataset("numbers:1.0.0")
        assert len(attempts) == 2
        with registry.connect(proxy.url) as catalog:
            with pytest.warns(CatalogUnavailableWarning):
                catalog.dataset("numbers:1.0.0")
            assert len(attempts) == 2
            with pytest.raises(CatalogUnavailableError):  # which is not known, so that it is asked
                catalog.datasets()
            assert len(attempts) == 3
            proxy.cut = lambda _: False
            assert [summary.name for summary in catalog.datasets()] == ["numbers"]
            catalog.dataset("numbers:1.0.0")  # without a warning


def test_a_brief_question_has_shorter_limits_and_never_longer_ones() -> None:
    usual = Limits(connect_seconds=60, read_seconds=60, retry_seconds=60, tries=8)
    assert usual.brief() == Limits(connect_seconds=1, read_seconds=5, retry_seconds=5, tries=2)
    short = Limits(connect_seconds=0.5, read_seconds=2, retry_seconds=3, tries=1)
    assert short.brief() == short


def failed(status: int) -> Exception:
    return ZeroDivisionError() if status == 500 else UsageError("not now", details={"http_status": status})


@pytest.mark.parametrize("status", [401, 403, 500, 502, 503, 507, 400, 404, 409, 422])
def test_the_key_of_a_call_that_may_succeed_later_is_released(
    status: int, behind: SqlCatalog, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind.experiments.add("doubled", "twice", default=True, actor="ann")
    key = {"Authorization": f"Bearer {make_token(behind, 'ann')}", "Idempotency-Key": f"key {status}"}
    retire, failures = type(behind.experiments).retire, [failed(status)]

    def fail_once(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return retire(*args, **kwargs)

    monkeypatch.setattr(type(behind.experiments), "retire", fail_once)
    url, body = f"{server.url}api/v1/experiments.retire", b'{"name": "doubled"}'
    answers = [urllib3.request("POST", url, body=body, headers=key, retries=False) for _ in range(3)]
    is_released = status in (401, 403) or status >= 500
    assert [answer.status for answer in answers] == [status, *([200] * 2 if is_released else [status] * 2)]
    replayed = [answer.headers.get("Idempotency-Replayed") for answer in answers]
    assert replayed == [None, None if is_released else "true", "true"]
    assert answers[0].headers["Content-Type"] == "application/problem+json"
