"""The parts of a URL that are masked, anywhere in a text."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from registry.errors import RegistryError, StorageError
from registry.intake.listing import list_files
from registry.masking import has_secret, mask, mask_all, may_hide_secret, remove_secrets
from registry.model import Reference
from registry.storage import open_store, require_no_secrets, spell_place
from registry.storage.faults import storage_errors

SECRETS = [
    ("http://ann:PW@host/x", "http://***@host/x", "http://host/x"),
    ("http://PW@host/x", "http://***@host/x", "http://host/x"),
    ("http://:PW@host", "http://***@host", "http://host"),
    ("HTTP://ANN:PW@host/x", "HTTP://***@host/x", "HTTP://host/x"),
    ("http://ann:P@PW@host/x", "http://***@host/x", "http://host/x"),
    ("http://ann:P/PW@host/x", "http://***@host/x", "http://host/x"),
    ("http://ann:P?PW@host/x", "http://***@host/x", "http://host/x"),
    ("http://ann:P#PW@host/x", "http://***@host/x", "http://host/x"),
    ("s3://KEY:PW@bucket/x", "s3://***@bucket/x", "s3://bucket/x"),
    ("abfs://c:PW@account/x", "abfs://***@account/x", "abfs://account/x"),
    ("https://host/x?token=PW", "https://host/x?token=***", "https://host/x"),
    ("https://host/x?page=1&token=PW&size=2", "https://host/x?page=1&token=***&size=2", "https://host/x?page=1&size=2"),
    ("https://host/x?page=1;token=PW", "https://host/x?page=1;token=***", "https://host/x?page=1"),
    ("https://host/x?TOK%65N=PW", "https://host/x?TOK%65N=***", "https://host/x"),
    ("https://host/x?X-Amz-Date=1&X-Amz-Signature=PW", "https://host/x?X-Amz-Date=1&X-Amz-Signature=***", None),
    ("https://host/x?AWSAccessKeyId=PW&Expires=1&Signature=PW", None, "https://host/x?Expires=1"),
    ("https://host/x?X-Goog-Credential=PW&X-Goog-Signature=PW", None, "https://host/x"),
    ("https://a.blob.core.windows.net/c/x?sv=1&sig=PW&se=2", None, "https://a.blob.core.windows.net/c/x?sv=1&se=2"),
    ("https://host/x?api_key=PW", "https://host/x?api_key=***", "https://host/x"),
    ("https://host/x?password=PW?PW", "https://host/x?password=***", "https://host/x"),
    ("https://host/x#access_token=PW", "https://host/x#access_token=***", "https://host/x"),
    ("https://host/x?page=1#sig=PW", "https://host/x?page=1#sig=***", "https://host/x?page=1"),
]
# Forms that the migration of schema 0008 does not know: no older registry stored such a text.
MORE_SECRETS = [
    ("postgresql://ann:P/W@PW@host/x", "postgresql://***@host/x"),
    ("s3://KEY:123/PW@PW@bucket/x", "s3://***@bucket/x"),
    ("cannot open host=db password=PW port=1", "cannot open host=db password=*** port=1"),
    ("PASSWORD = 'P W' user=ann", "PASSWORD = *** user=ann"),
    ("Server=db;Pwd=PW;", "Server=db;Pwd=***;"),
    ("cannot write s3://KEY:PW PW@bucket/x: 403", "cannot write s3://***@bucket/x: 403"),
    ("https://ann:PW PW@host/x", "https://***@host/x"),
    ("https://host/x?token=PW#PW", "https://host/x?token=***"),
    ("s3://bucket/x?token=?PW", "s3://bucket/x?token=***"),
    ("https://host/x?token=PW&PW", "https://host/x?token=***"),
    ("https://host/x?token=PW;;PW", "https://host/x?token=***"),
]
UNSAFE = [
    *(
        "s3://KEY:PW PW@bucket/x",
        "https://ann:PW PW@host/x",
        "postgresql://ann:PW x@host/x",
        "file://ann:PW@host/x.csv",
    ),
    *(
        "ftp://ann:PW/second@host/x.csv",
        "http:/ann:PW@host/x.csv",
        "https//ann:PW@host",
        "//ann:PW@host",
        "ann:PW@host/x",
    ),
    *(
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=PW",
        "x.csv;jsessionid=PW",
        "PGPASSWORD=PW",
        "http://ann:@PW/x@host",
    ),
    *("http://[::1/x", "https://host:99999/x", "https://host:PW/x", "https://host/x?token=PW PW", "host=h password=PW"),
]
INNOCENT = [
    "https://host:8080/x",
    "https://host:8080/p@th",
    "https://host/@ann/x",
    "http://[::1]:80/a@b",
    "https://host/x?download=1",
    "https://host/x?author=ann&monkey=1",
    "https://host/x?token=",
    "https://host/x#records=1",
    "abfss://container@account.dfs.core.windows.net/x",
    "postgresql://ann@host/catalog",
    "ann@example.org",
    "key=value",
    "the author wrote password=1234",
    "s3://bucket/a:b@c",
    "see http://host:80, or ask ann@host",
    "see https://example.org: ask ann@host",
    "s3://bucket/x and ann@host",
    "/data/ann@home/x",
]


@pytest.mark.parametrize(("url", "masked", "removed"), SECRETS)
def test_secrets_of_a_url_are_masked_and_scheme_host_and_path_stay(
    url: str, masked: str | None, removed: str | None
) -> None:
    assert "PW" not in mask(url)
    assert has_secret(url)
    assert masked is None or mask(url) == masked
    assert removed is None or remove_secrets(url) == removed
    assert mask(mask(url)) == mask(url)
    assert not has_secret(remove_secrets(url))


@pytest.mark.parametrize(("text", "masked"), MORE_SECRETS)
def test_a_password_is_masked_although_it_was_not_escaped(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert mask(masked) == masked


@pytest.mark.parametrize("text", UNSAFE)
def test_a_text_whose_password_has_no_visible_end_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    calls: list[Callable[[str], object]] = [open_store, spell_place, list_files, Reference.parse]
    for call in [*calls, lambda place: require_no_secrets(place, "the data directory")]:
        with pytest.raises(RegistryError, match="not shown") as caught:
            call(text)
        assert "PW" not in f"{caught.value!r} {caught.value.details} {caught.value.__cause__!r}"
    Path(tmp_path, "ann:PW@host=PGPASSWORD=1").touch()
    assert list_files(str(tmp_path / "ann:PW@host=PGPASSWORD=1")).names == ["ann:PW@host=PGPASSWORD=1"]


@pytest.mark.parametrize(
    "text",
    [
        *("s3://bucket/my folder/x", "https://ann:PW@host/x", "github://org:repo@main/x", "data/key=3/x", "C:\\x"),
        *(
            "digits:1.0.0",
            "digits@paper",
            "file:///a/b c.csv",
            "./12:30.csv",
            "/data/10:30/ann@home.csv",
            "train[:10%]",
        ),
        *("hf://datasets/a/b@main/x", "https://host:8080/p@th", "abfss://container@account.dfs.core.windows.net/x"),
    ],
)
def test_an_ordinary_path_or_url_is_not_refused(text: str) -> None:
    assert not may_hide_secret(text)


@pytest.mark.parametrize("url", INNOCENT)
def test_text_that_is_not_a_secret_is_kept(url: str) -> None:
    assert mask(url) == remove_secrets(url) == url
    assert not has_secret(url)


@pytest.mark.parametrize(("url", "_masked", "_removed"), SECRETS)
def test_a_url_is_masked_within_any_text(url: str, _masked: str | None, _removed: str | None) -> None:
    for text in (f"cannot read {url}: 404", f"URL('{url}')", f"ann wrote {url}, and {url}", f"a\n{url}\nb"):
        assert "PW" not in mask(text)
    assert "PW" not in repr(mask_all({"places": [{url: url}], "pair": (url, 1), "nothing": None}))


@pytest.mark.parametrize(
    "text",
    ["@" + "a://b:c" * 20_000, "@://" + "a" * 100_000, "?a=;" * 50_000, "?a=1" + "&a" * 50_000, "?" * 100_000 + "="],
)
def test_a_hostile_text_is_masked_at_once(text: str) -> None:
    assert len(mask(text)) <= len(text)  # a pattern that backtracks would take hours


@pytest.mark.parametrize(("url", "_masked", "_removed"), SECRETS)
def test_an_error_masks_its_message_hint_and_details(url: str, _masked: str | None, _removed: str | None) -> None:
    error = StorageError(f"cannot read {url}", hint=f"Try {url}", details={"path": url, "places": [url]})
    expected = f"{error} {error!r} {error.args} {error.hint} {error.details}"
    assert "PW" not in expected
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
    assert (str(again), again.hint, again.details) == (str(error), error.hint, error.details)


def test_a_traceback_shows_no_url_of_the_library_that_failed() -> None:
    first, second = SECRETS[0][0], SECRETS[10][0]  # by name: a traceback shows lines of code

    def fail() -> None:
        try:
            raise ValueError(f"no route to {first}")
        except ValueError as error:
            raise FileNotFoundError(second) from error

    with pytest.raises(StorageError) as caught, storage_errors("read", first):
        fail()
    reported = "".join(traceback.format_exception(caught.value))
    assert "PW" not in reported
    assert "OSError: FileNotFoundError: https://host/x?token=***" in reported
    assert "in fail" in reported


def test_what_is_shown_of_a_database_stays_as_it_is() -> None:
    assert mask("postgresql://ann:***@host/x?sslpassword=***") == "postgresql://ann:***@host/x?sslpassword=***"


def test_a_store_shows_its_url_without_a_password() -> None:
    store = open_store("memory://ann:PW@x")
    assert "PW" not in f"{store!r} {store.locate('a')}"
    assert repr(store) == "FsspecStore('memory://***@x')"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "gs", "az"])
@pytest.mark.parametrize(
    ("rest", "shown"),
    [("KEY:PW@bucket/x", "***@bucket"), ("bucket/x?X-Amz-Signature=PW", "bucket/x?X-Amz-Signature=***")],
)
def test_the_url_of_an_object_store_holds_no_password(scheme: str, rest: str, shown: str) -> None:
    with pytest.raises(StorageError) as caught:
        open_store(f"{scheme}://{rest}")
    assert str(caught.value) == f"cannot open {scheme}://{shown}: credentials do not belong in a URL"


def test_stored_text_contains_no_password() -> None:
    assert require_no_secrets("https://host/x", "the folder") == "https://host/x"
    pattern = r"^the folder https://\*\*\*@host/x contains a password or another secret(?m:$)"
    with pytest.raises(ValueError, match=pattern):
        require_no_secrets("https://ann:PW@host/x", "the folder")


def test_the_migration_that_removes_secrets_knows_the_same_ones() -> None:
    migration: Any = import_module("registry.migrations.versions.0008_secrets_in_urls")
    for url in [*INNOCENT, *(url for url, _, _ in SECRETS)]:
        assert migration.clean_url(url) == remove_secrets(url)
        assert migration.mask(url) == (mask(url) if "://" in url else url)
