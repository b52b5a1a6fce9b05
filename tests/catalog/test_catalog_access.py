"""Tokens of a shared catalog, what they cover, and the calls that were refused."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.catalog_samples import execute, publish

from registry.catalog import CatalogBackend, open_catalog, schema
from registry.catalog import access as sql_access
from registry.catalog.sql_catalog import open_sql_catalog
from registry.errors import CatalogError, ConflictError, TokenNotFoundError, UsageError
from registry.model import AccessToken, Reference, Role, digest_of, new_secret

DAY = timedelta(days=1)


def create(catalog: CatalogBackend, name: str = "ann", role: Role = Role.READER, **options: object) -> AccessToken:
    token_id, _, digest = new_secret()
    return catalog.access.create_token(token_id, digest, name, role, **{"actor": "carol", **options})  # type: ignore[arg-type]  # one helper for all options


def token_of(*datasets: str) -> AccessToken:
    now = datetime.now(UTC)
    return AccessToken(id="0" * 12, name="ann", role=Role.READER, datasets=datasets, created_at=now, created_by="carol")


# The text of a token


def test_the_text_of_a_token_has_a_prefix_an_id_and_a_checksum() -> None:
    token_id, text, digest = new_secret()
    assert re.fullmatch(rf"shb_{token_id}_[A-Za-z0-9_-]{{43}}[0-9A-Za-z]{{6}}", text)
    assert digest == hashlib.sha256(text.encode()).hexdigest() == digest_of(text)
    assert len({new_secret()[1] for _ in range(100)}) == 100


@given(place=st.integers(0, 65), letter=st.sampled_from("0aZ_-~é"))
def test_a_text_with_a_wrong_character_is_refused_and_not_repeated(place: int, letter: str) -> None:
    _, text, _ = new_secret()
    wrong = text[:place] + letter + text[place + 1 :]
    if wrong == text:
        assert digest_of(wrong)
        return
    for candidate in (wrong, text[:place]):
        with pytest.raises(UsageError) as refused:
            digest_of(candidate)
        assert text[17:40] not in f"{refused.value} {refused.value.hint}"


# What a token covers


def test_a_name_covers_all_configs_and_a_config_only_itself() -> None:
    token = token_of("mnist", "lab_*", "c4/e?")
    assert token.covers("mnist")
    assert token.covers("mnist", "plain")
    assert token.covers("lab_a", "x")
    assert token.covers("c4", "en")
    assert not token.covers("c4", "eng")
    assert not token.covers("c4")
    assert not token.covers("c4/en")
    assert not token.covers("Mnist")
    assert not token.covers("mnist2")
    assert not token.covers_all
    assert token_of("a", "*").covers_all
    assert not token_of("*/*").covers("mnist")


@pytest.mark.parametrize("pattern", ["", "a/b/c", "[ab]", "a b", "a:1.0.0", "a@b", "/", "a/", "é", "a" * 201, "../x"])
def test_patterns_that_match_no_dataset_are_refused(catalog: CatalogBackend, pattern: str) -> None:
    with pytest.raises(UsageError, match="invalid pattern"):
        create(catalog, datasets=("mnist", pattern))
    assert catalog.access.tokens() == ()


def test_each_role_includes_those_before_it() -> None:
    assert [[role.includes(other) for other in Role] for role in Role] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


# Tokens in a catalog


def test_a_token_is_created_used_and_revoked(catalog: CatalogBackend, catalog_url: str) -> None:
    token_id, text, digest = new_secret()
    token = catalog.access.create_token(
        token_id, digest, "ann", Role.PUBLISHER, datasets=("mnist", "c4/en", "mnist"), expires_in=DAY, actor="carol"
    )
    assert (token.id, token.name, token.role, token.datasets) == (token_id, "ann", Role.PUBLISHER, ("mnist", "c4/en"))
    assert token.expires_at == token.created_at + DAY
    assert (token.created_by, token.last_used_at, token.revoked_at) == ("carol", None, None)
    assert catalog.access.tokens() == (token,)
    assert catalog.access.authenticate(digest_of(text)) == token
    assert catalog.access.authenticate("0" * 64) is None

    (used,) = catalog.access.tokens()
    assert used.last_used_at is not None
    assert dataclasses.replace(used, last_used_at=None) == token
    catalog.access.authenticate(digest)
    assert catalog.access.tokens() == (used,)  # noted once a minute

    revoked = catalog.access.revoke_token(token_id, actor="bob")
    assert (revoked.revoked_by, revoked.is_valid(catalog.now())) == ("bob", False)
    assert catalog.access.revoke_token(token_id, actor="eve") == revoked
    assert catalog.access.authenticate(digest) == revoked
    assert catalog.access.tokens() == (revoked,)
    assert text not in str(execute(catalog_url, "SELECT * FROM access_token"))


def test_the_use_of_a_token_is_noted_again_after_a_minute(catalog: CatalogBackend, catalog_url: str) -> None:
    token_id, _, digest = new_secret()
    catalog.access.create_token(token_id, digest, "ann", Role.READER, actor="carol")
    catalog.access.authenticate(digest)
    execute(catalog_url, "UPDATE access_token SET last_used_at = '2020-01-01 00:00:00.000000'")
    catalog.access.authenticate(digest)
    (token,) = catalog.access.tokens()
    assert token.last_used_at is not None
    assert catalog.now() - token.last_used_at < DAY
    catalog.access.revoke_token(token_id, actor="carol")
    execute(catalog_url, "UPDATE access_token SET last_used_at = NULL")
    catalog.access.authenticate(digest)
    assert catalog.access.tokens()[0].last_used_at is None


def test_a_token_expires_by_the_clock_of_the_catalog(catalog: CatalogBackend) -> None:
    token = create(catalog, expires_in=DAY)
    assert token.expires_at is not None
    assert token.is_valid(token.expires_at - timedelta(seconds=1))
    assert not token.is_valid(token.expires_at)
    for expires_in in (timedelta(0), -DAY):
        with pytest.raises(UsageError, match=r"^the token would already have expired"):
            create(catalog, expires_in=expires_in)
    with pytest.raises(UsageError, match=r"^the token would never expire"):
        create(catalog, expires_in=timedelta.max)


def test_expired_tokens_of_an_issuer_are_removed_after_a_week(catalog: CatalogBackend, catalog_url: str) -> None:
    issuer = "https://login.example/lab"
    jobs = [create(catalog, expires_in=DAY, actor=issuer) for _ in range(3)]
    person = create(catalog, expires_in=DAY)
    assert (jobs[0].is_exchanged, person.is_exchanged) == (True, False)
    ago = {8: jobs[0].id, 6: jobs[1].id, 9: person.id}
    for days, token_id in ago.items():
        moment = catalog.now() - days * DAY
        change = f"UPDATE access_token SET expires_at = '{moment:%Y-%m-%d %H:%M:%S.%f}' WHERE id = '{token_id}'"  # noqa: S608
        execute(catalog_url, change)
    create(catalog, expires_in=DAY, actor=issuer, dry_run=True)
    assert len(catalog.access.tokens()) == 4
    newest = create(catalog, expires_in=DAY, actor=issuer)
    assert {token.id for token in catalog.access.tokens()} == {jobs[1].id, jobs[2].id, person.id, newest.id}


@pytest.mark.parametrize("name", ["", " ann", "ann\n", "a\x1b[31m", "a" * 201, "a\0", "\ud800"])
def test_names_that_nobody_can_read_are_refused(catalog: CatalogBackend, name: str) -> None:
    with pytest.raises(UsageError):
        create(catalog, name)
    assert catalog.access.tokens() == ()


@pytest.mark.parametrize("text", ["ann:hunter2@host", "s3://KEY:hunter2@bucket", "AccountKey=hunter2"])
def test_what_may_be_a_password_is_refused_and_not_repeated(catalog: CatalogBackend, text: str) -> None:
    for name, datasets in ((text, ("*",)), ("ann", (text,))):
        with pytest.raises(UsageError, match="looks like a URL or a password") as refused:
            create(catalog, name, datasets=datasets)
        assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    assert create(catalog, "ann@example.org").name == "ann@example.org"


def test_an_id_or_digest_is_used_once(catalog: CatalogBackend) -> None:
    token = create(catalog)
    token_id, _, digest = new_secret()
    catalog.access.create_token(token_id, digest, "bob", Role.READER, actor="carol")
    for an_id, a_digest in ((token.id, "0" * 64), ("0" * 12, digest)):
        for dry_run in (True, False):
            with pytest.raises(ConflictError, match=rf"^the token {an_id} already exists"):
                catalog.access.create_token(an_id, a_digest, "eve", Role.ADMIN, actor="eve", dry_run=dry_run)
    for an_id, a_digest in (("A" * 12, digest), ("0" * 11, "1" * 64), ("0" * 12, "G" * 64)):
        with pytest.raises(UsageError):
            catalog.access.create_token(an_id, a_digest, "eve", Role.ADMIN, actor="eve")
    assert [one.name for one in catalog.access.tokens()] == ["ann", "bob"]


def test_of_two_tokens_with_one_id_at_once_one_is_created(catalog: CatalogBackend) -> None:
    def run(number: int) -> str:
        try:
            catalog.access.create_token("0" * 12, f"{number:064x}", "ann", Role.READER, actor="carol")
        except ConflictError as error:
            return error.code
        return "created"

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(run, range(4))) == ["conflict", "conflict", "conflict", "created"]


def test_dry_runs_write_nothing(catalog: CatalogBackend) -> None:
    assert create(catalog, dry_run=True).name == "ann"
    assert catalog.access.tokens() == ()
    token = create(catalog)
    catalog.access.revoke_token(token.id, actor="bob", dry_run=True)
    assert catalog.access.tokens() == (token,)


def test_an_unknown_token_is_named_with_the_nearest(catalog: CatalogBackend) -> None:
    catalog.access.create_token("3f9a5c0d71be", "0" * 64, "ann", Role.READER, actor="carol")
    with pytest.raises(TokenNotFoundError) as missing:
        catalog.access.revoke_token("3f9a5c0d71bf", actor="carol")
    assert missing.value.message == "no token '3f9a5c0d71bf'"
    assert missing.value.hint == "Did you mean '3f9a5c0d71be'? There are: 3f9a5c0d71be."
    with pytest.raises(TokenNotFoundError) as missing:
        catalog.access.revoke_token("ann", actor="carol", dry_run=True)
    assert missing.value.hint == "ann has the tokens 3f9a5c0d71be: name one of these ids."


def test_a_read_only_catalog_authenticates(tmp_path: Path, sqlite_template: Path) -> None:
    path = tmp_path / "catalog.db"
    path.write_bytes(sqlite_template.read_bytes())
    token_id, _, digest = new_secret()
    with open_catalog(path) as catalog:
        catalog.access.create_token(token_id, digest, "ann", Role.READER, actor="carol")
    execute(str(path), "PRAGMA journal_mode=DELETE")
    with open_sql_catalog(path, frozen=True) as catalog:
        token = catalog.access.authenticate(digest)
        assert token.id == token_id
        assert catalog.access.tokens()[0].last_used_at is None
        with pytest.raises(CatalogError):
            catalog.access.revoke_token(token_id, actor="carol")


@pytest.mark.parametrize(
    "damage", ["name = ' '", "datasets_json = '[7]'", "datasets_json = '[]'", "datasets_json = 'x'"]
)
def test_a_damaged_token_is_named_as_damage(catalog: CatalogBackend, catalog_url: str, damage: str) -> None:
    token_id, _, digest = new_secret()
    catalog.access.create_token(token_id, digest, "ann", Role.READER, actor="carol")
    execute(catalog_url, f"UPDATE access_token SET {damage}")  # noqa: S608 (texts above)
    calls: list[Callable[[], object]] = [catalog.access.tokens, lambda: catalog.access.authenticate(digest)]
    for call in calls:
        with pytest.raises(CatalogError, match="a stored value cannot be read"):
            call()


def test_a_backup_has_the_tokens(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        token = create(catalog)
        lines = b"".join(catalog.backup())
    assert b"access_token" in lines
    assert token.id.encode() in lines
    assert b"kept_answer" not in lines


def test_a_way_back_and_up_leaves_no_tokens(catalog_url: str) -> None:
    with open_catalog(catalog_url) as catalog:
        create(catalog)
    schema.downgrade(catalog_url, "0013")
    schema.upgrade(catalog_url)
    assert schema.check(catalog_url) == []
    with open_catalog(catalog_url) as catalog:
        assert catalog.access.tokens() == ()


# Calls that were refused


def test_refusals_are_listed_by_pages_newest_first(catalog: CatalogBackend) -> None:
    for number in range(7):
        catalog.access.note_refusal(
            token="0" * 12 if number else None, principal="ann", call="find", dataset=f"d{number}", reason="not covered"
        )
    first = catalog.access.refusals(limit=3)
    assert [one.dataset for one in first] == ["d6", "d5", "d4"]
    rest = catalog.access.refusals(before=first[-1].id, limit=10)
    assert [one.dataset for one in rest] == ["d3", "d2", "d1", "d0"]
    assert (rest[-1].token, rest[-1].principal, rest[-1].call, rest[-1].reason) == (None, "ann", "find", "not covered")
    assert abs(rest[-1].at - catalog.now()) < DAY
    for limit in (0, 1001):
        with pytest.raises(UsageError):
            catalog.access.refusals(limit=limit)


def test_only_the_newest_refusals_are_kept(catalog: CatalogBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_access, "_MAX_REFUSALS", 3)
    for number in range(5):
        catalog.access.note_refusal(token=None, principal="", call="find", dataset=str(number), reason="x")
    assert [one.dataset for one in catalog.access.refusals()] == ["4", "3", "2"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\x1b[31m", "x" * 100_000])
def test_any_text_of_a_refused_call_can_be_stored(catalog: CatalogBackend, text: str) -> None:
    catalog.access.note_refusal(token=None, principal=text, call=text, dataset=text, reason=text)
    (refusal,) = catalog.access.refusals()
    assert refusal.dataset == refusal.reason
    assert 0 < len(refusal.dataset) <= 500
    assert refusal.dataset.isprintable()


# The version of a split


def test_the_version_of_a_split_is_found_by_its_id(catalog: CatalogBackend, catalog_url: str) -> None:
    publish(catalog, "mnist/plain:1.0.0")
    publish(catalog, "words:2.0.0")
    rows = execute(catalog_url, "SELECT s.id, v.major FROM split s JOIN dataset_version v ON v.id = s.version_id")
    assert len(rows) == 4
    for split_id, major in rows:
        expected = "mnist/plain:1.0.0" if major == 1 else "words:2.0.0"
        assert catalog.shards.version_of(split_id) == Reference.parse(expected)
    assert catalog.shards.version_of(10**6) is None
