"""Keys that sign pin files: read in every form that they have, refused in every other, and made anew."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from support.golden import check_errors
from support.pin_samples import sample_entry, sample_pins

from registry.errors import AlreadyStoredError, UsageError
from registry.pins import keys
from registry.pins.keys import key_id, load_private_key, load_public_key, new_key
from registry.pins.signature import check_signature, sign_pin

GOLDEN = Path(__file__).parent / "golden" / "pin_keys"
ADA, BOB = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
ADA_ID, BOB_ID = key_id(ADA.public_key()), key_id(BOB.public_key())
PEM = serialization.Encoding.PEM
OPENSSH = serialization.PrivateFormat.OpenSSH
PKCS8 = serialization.PrivateFormat.PKCS8
NO_PASSWORD = serialization.NoEncryption()


def written(folder: Path, data: bytes) -> Path:
    path = folder / "key"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("form", [PKCS8, OPENSSH])
def test_keys_of_both_forms_are_read(tmp_path: Path, form: serialization.PrivateFormat) -> None:
    encryption = serialization.BestAvailableEncryption("se§cret".encode())
    (tmp_path / "open").write_bytes(ADA.private_bytes(PEM, form, NO_PASSWORD))
    (tmp_path / "locked").write_bytes(ADA.private_bytes(PEM, form, encryption))
    for name, password in (("open", None), ("locked", "se§cret")):
        assert load_private_key(tmp_path / name, password).private_bytes_raw() == bytes([1]) * 32
    rows = [("open", "wrong"), ("locked", None), ("locked", "wrong")]
    calls = [partial(load_private_key, tmp_path / name, password) for name, password in rows]
    calls += [partial(load_public_key, tmp_path / name) for name in ("open", "locked")]
    check_errors(GOLDEN / "keys_of_both_forms.txt", calls, folder=tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        ADA.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
        ADA.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH),
        ADA.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        + b" ada@example.org\n",
    ],
)
def test_public_keys_are_read_from_files_and_texts(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    assert key_id(load_public_key(path)) == key_id(load_public_key(str(path))) == ADA_ID
    assert key_id(load_public_key(data.decode())) == ADA_ID
    with pytest.raises(UsageError) as caught:
        load_private_key(path)
    assert caught.value.message == f"{path} is a public key; signing needs the private key"


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = []
    for name, key in {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ecdsa": ec.generate_private_key(ec.SECP256R1()),
        "ed448": ed448.Ed448PrivateKey.generate(),
    }.items():
        (tmp_path / name).write_bytes(key.private_bytes(PEM, PKCS8, NO_PASSWORD))
        text = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
        calls += [partial(load_private_key, tmp_path / name), partial(load_public_key, text)]
    check_errors(GOLDEN / "keys_of_other_kinds.txt", calls, folder=tmp_path)


P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P


def square_of_x(y: int) -> int:
    """Of a point of edwards25519 (RFC 8032, section 5.1): -x**2 + y**2 = 1 + d * x**2 * y**2."""
    return (y * y - 1) * pow(D * y * y + 1, -1, P) % P


def doubled(y: int) -> int:
    """The y of twice the point."""
    xx = square_of_x(y)
    return (y * y + xx) * pow(1 - D * xx * y * y, -1, P) % P


def openssh(raw: bytes) -> str:
    """A line with a public key of any bytes."""
    blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + raw
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} eve"


def test_the_keys_of_small_order_are_all_of_them() -> None:
    reported = {int.from_bytes(raw, "little") for raw in keys._SMALL_ORDER}
    assert all(doubled(doubled(doubled(y))) == 1 for y in reported)
    points = {y % P: 1 if square_of_x(y) == 0 else 2 for y in reported}
    assert sum(points.values()) == 8, "as many as there are"
    assert reported == points.keys() | {y + P for y in points if y + P < 2**255}, "in each of their encodings"


def test_a_key_of_small_order_is_refused(tmp_path: Path) -> None:
    for key in sorted(keys._SMALL_ORDER):
        for raw in (key, key[:-1] + bytes([key[-1] | 0x80])):
            with pytest.raises(UsageError) as caught:
                load_public_key(openssh(raw))
            assert caught.value.message == "the given key is a key of small order: anybody can forge its signatures"
            assert str(caught.value.hint).startswith("Programs do not create such keys by accident.")
            public = Ed25519PublicKey.from_public_bytes(raw)
            path = written(tmp_path, public.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
            with pytest.raises(UsageError, match="small order"):
                load_public_key(path)


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    contents = {"empty": b"", "word": b"hello", "cut": b"-----BEGIN PRIVATE KEY-----\nAAAA\n", "bytes": b"\xff" * 100}
    contents["long"] = b" " * 100_000
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = ["", *(tmp_path / name for name in (*contents, "none"))]
    calls = (partial(load, path) for path in paths for load in (load_private_key, load_public_key))
    check_errors(GOLDEN / "what_is_no_key.txt", calls, folder=tmp_path)


@pytest.mark.parametrize("password", [None, "secret"])
def test_a_new_key_signs(tmp_path: Path, password: str | None) -> None:
    path = tmp_path / "key"
    name = new_key(path, password)
    assert key_id(load_public_key(tmp_path / "key.pub")) == name
    assert path.stat().st_mode & 0o777 == 0o600
    assert (b"ENCRYPTED" in path.read_bytes()) == (password is not None)
    data = sample_pins(sample_entry()).to_yaml().encode()
    text = sign_pin(data, load_private_key(path, password), name="dataset.lock.yaml")
    assert check_signature(data, text, [load_public_key(f"{path}.pub")]).keyids == (name,)
    assert new_key(tmp_path / "other") != name


@pytest.mark.parametrize("taken", ["key", "key.pub"])
def test_a_new_key_replaces_nothing(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(AlreadyStoredError) as caught:
        new_key(tmp_path / "key")
    assert caught.value.message == f"cannot write {tmp_path / taken}: it exists already"
    assert [path.name for path in tmp_path.iterdir()] == [taken]
    assert (tmp_path / taken).read_text() == "mine"
    with pytest.raises(UsageError, match="the password is empty"):
        new_key(tmp_path / "another", "")


def test_a_new_key_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AlreadyStoredError):
        new_key(tmp_path / "key")
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_package_is_reported_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encrypted = ADA.private_bytes(PEM, OPENSSH, serialization.BestAvailableEncryption(b"secret"))
    path = written(tmp_path, encrypted)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    calls = (lambda: load_private_key(path), lambda: load_public_key(path), lambda: new_key(tmp_path / "new"))
    check_errors(GOLDEN / "a_missing_package.txt", calls)


def test_an_encrypted_key_of_openssh_names_its_missing_package(tmp_path: Path) -> None:
    path = written(tmp_path, ADA.private_bytes(PEM, OPENSSH, serialization.BestAvailableEncryption(b"secret")))
    script = (
        "import sys; sys.modules['bcrypt'] = None\n"
        "from registry.pins.keys import load_private_key\n"
        f"try: load_private_key({str(path)!r}, 'secret')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "an encrypted key of OpenSSH needs the package 'bcrypt', which is not installed\n"
