"""Where ``registry login`` keeps tokens: in a keyring, or in a private file that several processes write."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import warm_python

from registry.api.logins import Logins
from registry.errors import NotFoundError, RegistryWarning
from registry.model import new_secret

URL = "https://catalog.example/"

KEYRING = '''
"""The functions of the package keyring that others call, with the passwords in a file; it may be locked or fail."""

import json
import os
from pathlib import Path

from keyring import errors

_FILE = Path(__file__).with_name("passwords.json")


class _Backend:
    priority = float(os.environ.get("FAKE_KEYRING_PRIORITY", "5"))


def get_keyring():
    return _Backend()


def _load():
    kind = os.environ.get("FAKE_KEYRING_FAILS")
    if kind:
        raise getattr(errors, kind, RuntimeError)("the collection is locked")
    return json.loads(_FILE.read_text()) if _FILE.exists() else {}


def get_password(service, user):
    return _load().get(f"{service} {user}")


def set_password(service, user, password):
    _FILE.write_text(json.dumps({**_load(), f"{service} {user}": password}))


def delete_password(service, user):
    passwords = _load()
    if f"{service} {user}" not in passwords:
        raise errors.PasswordDeleteError("no such password")
    del passwords[f"{service} {user}"]
    _FILE.write_text(json.dumps(passwords))
'''

ERRORS = '''
"""The errors of the package keyring."""


class KeyringError(Exception):
    pass


class KeyringLocked(KeyringError):
    pass


class InitError(KeyringError):
    pass


class PasswordDeleteError(KeyringError):
    pass
'''


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of an installed keyring, and its file of passwords."""
    folder = tmp_path / "site" / "keyring"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(KEYRING)
    (folder / "errors.py").write_text(ERRORS)
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyring"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(folder.parent))
    for name in ("REGISTRY_TOKEN", "FAKE_KEYRING_FAILS", "FAKE_KEYRING_PRIORITY"):
        monkeypatch.delenv(name, raising=False)
    yield folder / "passwords.json"
    for name in [name for name in sys.modules if name.partition(".")[0] == "keyring"]:
        del sys.modules[name]


def test_a_keyring_keeps_the_token_and_no_file_does(keyring: Path, tmp_path: Path) -> None:
    logins = Logins(tmp_path / "home")
    text = new_secret()[1]
    assert logins.keep(URL, text) == "the keyring"
    assert not logins.file.exists()
    assert json.loads(keyring.read_text()) == {f"shardbook {URL}": text}
    assert (Logins(tmp_path / "home").token(URL), logins.token("https://other.example/")) == (text, None)
    logins.forget(URL)
    assert logins.token(URL) is None
    with pytest.raises(NotFoundError):
        logins.forget(URL)


@pytest.mark.parametrize("kind", ["KeyringLocked", "InitError", "RuntimeError"])
def test_a_keyring_that_fails_gives_way_to_the_file_with_a_note(
    keyring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    logins = Logins(tmp_path / "home")
    older, newer = new_secret()[1], new_secret()[1]
    logins.keep(URL, older)
    monkeypatch.setenv("FAKE_KEYRING_FAILS", kind)
    with pytest.warns(RegistryWarning, match="the keyring cannot be read: the collection is locked"):
        assert logins.token(URL) is None
    with pytest.warns(RegistryWarning, match="the keyring cannot be written: the collection is locked"):
        assert logins.keep(URL, newer) == str(logins.file)
    assert logins.file.stat().st_mode & 0o777 == 0o600
    assert logins.token(URL) == newer  # without a warning
    monkeypatch.delenv("FAKE_KEYRING_FAILS")
    assert logins.token(URL) == newer  # and not the older one of the keyring
    assert logins.keep(URL, newer) == "the keyring"
    assert json.loads(logins.file.read_text()) == {}
    assert logins.token(URL) == newer
    logins.forget(URL)
    assert logins.token(URL) is None


def test_a_keyring_without_a_backend_is_not_used(
    keyring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEYRING_PRIORITY", "0")
    logins = Logins(tmp_path / "home")
    assert logins.keep(URL, new_secret()[1]) == str(logins.file)
    assert not keyring.exists()


def test_logins_of_several_processes_at_once_lose_no_token(tmp_path: Path) -> None:
    program = """
import sys, time
from pathlib import Path
from registry.api.logins import Logins
from registry.model import new_secret
logins = Logins(Path(sys.argv[1]))
while not Path(sys.argv[1], "start").exists():
    time.sleep(0.001)
for number in range(40):
    logins.keep(f"https://{sys.argv[2]}{number}.example/", new_secret()[1])
"""
    environment = {name: value for name, value in os.environ.items() if name != "REGISTRY_TOKEN"}
    processes = [
        warm_python.Popen([sys.executable, "-c", program, str(tmp_path), name], env=environment) for name in "ab"
    ]
    (tmp_path / "start").touch()
    assert [process.wait(60) for process in processes] == [0, 0]
    logins = Logins(tmp_path)
    assert all(logins.token(f"https://{name}{number}.example/") for name in "ab" for number in range(40))
    assert [file.name for file in logins.file.parent.iterdir()] == ["tokens.json"]
