"""Keys that sign pin files: read in every form that they have, refused in every other, and made anew."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from support.pin_samples import sample_entry, sample_pins

from registry.errors import AlreadyStoredError, MissingExtraError, NotStoredError, UsageError
from registry.pins import keys
from registry.pins.keys import key_id, load_private_key, load_public_key, new_key
from registry.pins.signature import check_signature, sign_pin

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
@pytest.mark.parametrize("password", [None, "se§cret"])
def test_keys_of_both_forms_are_read(tmp_path: Path, form: serialization.PrivateFormat, password: str | None) -> None:
    encryption = NO_PASSWORD if password is None else serialization.BestAvailableEncryption(password.encode())
    path = written(tmp_path, ADA.private_bytes(PEM, form, encryption))
    assert load_private_key(path, password).private_bytes_raw() == bytes([1]) * 32
    with pytest.raises(UsageError) as caught:
        load_private_key(path, "wrong" if password is None else None)
    assert caught.value.message == (
        f"the key {path} is not encrypted, but a password was given"
        if password is None
        else f"the key {path} is encrypted"
    )
    if password is not None:
        with pytest.raises(UsageError) as caught:
            load_private_key(path, "wrong")
        assert caught.value.message == f"the password of the key {path} is wrong, or the key is damaged"
    with pytest.raises(UsageError) as caught:
        load_public_key(path)
    assert caught.value.message == f"{path} is a private key; signatures are checked with the public key"


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


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: rsa.generate_private_key(65537, 2048), "RSA"),
        (lambda: ec.generate_private_key(ec.SECP256R1()), "ECDSA"),
        (ed448.Ed448PrivateKey.generate, "Ed448"),
    ],
    ids=["rsa", "ecdsa", "ed448"],
)
def test_keys_of_other_kinds_are_refused(tmp_path: Path, make: Callable[[], Any], kind: str) -> None:
    key = make()
    path = written(tmp_path, key.private_bytes(PEM, PKCS8, NO_PASSWORD))
    with pytest.raises(UsageError) as caught:
        load_private_key(path)
    assert caught.value.message == f"{path} is a key of the type {kind}; pins are signed only with Ed25519"
    assert caught.value.hint == "To create a key: ssh-keygen -t ed25519 -f FILE"
    text = key.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(UsageError) as caught:
        load_public_key(text)
    assert caught.value.message == f"the given key is a key of the type {kind}; pins are signed only with Ed25519"


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


@pytest.mark.parametrize("raw", sorted(keys._SMALL_ORDER), ids=bytes.hex)
@pytest.mark.parametrize("sign", [0, 0x80])
def test_a_key_of_small_order_is_refused(tmp_path: Path, raw: bytes, sign: int) -> None:
    raw = raw[:-1] + bytes([raw[-1] | sign])
    with pytest.raises(UsageError) as caught:
        load_public_key(openssh(raw))
    assert caught.value.message == ("the given key is a key of small order: anybody can forge its signatures")
    assert caught.value.hint == (
        "Programs do not create such keys by accident. Ask the signer for the right key over another channel."
    )
    pem = Ed25519PublicKey.from_public_bytes(raw).public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    path = written(tmp_path, pem)
    with pytest.raises(UsageError, match="small order"):
        load_public_key(path)


def test_an_empty_path_of_a_key_is_refused() -> None:
    for load in (load_public_key, load_private_key):
        with pytest.raises(UsageError) as caught:
            load("")
        assert (caught.value.message, caught.value.hint) == (
            "the path of the key file is empty",
            "Name a key file.",
        )


@pytest.mark.parametrize("data", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nAAAA\n", b"\xff" * 100])
def test_an_invalid_key_is_refused(tmp_path: Path, data: bytes) -> None:
    path = written(tmp_path, data)
    with pytest.raises(UsageError) as caught:
        load_private_key(path)
    assert caught.value.message == f"{path} is not a private key in PEM or OpenSSH format"
    if b"PRIVATE" not in data:
        with pytest.raises(UsageError) as caught:
            load_public_key(path)
        assert caught.value.message == f"{path} is not a public key in PEM or OpenSSH format"


def test_a_missing_or_too_long_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotStoredError, match="No such file"):
        load_private_key(tmp_path / "none")
    with pytest.raises(NotStoredError, match="No such file"):
        load_public_key(tmp_path / "none")
    with pytest.raises(UsageError, match="is not a key: it is longer than 65536 bytes"):
        load_public_key(written(tmp_path, b" " * 100_000))


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
    for call in (lambda: load_private_key(path), lambda: load_public_key(path), lambda: new_key(tmp_path / "new")):
        with pytest.raises(MissingExtraError) as caught:
            call()
        assert caught.value.message == "a signature needs the package 'cryptography', which is not installed"
        assert caught.value.hint == "Install it with: pip install 'shardbook[sign]'"


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
