"""Reads and writes the Ed25519 keys that sign pins, in the files of OpenSSL and OpenSSH.

It needs the package ``cryptography`` (extra ``sign``). No part of a key is printed or logged, except the name of its
public half.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from registry.errors import UsageError, require_extra
from registry.storage import expand_home, read_file
from registry.storage.faults import storage_errors
from registry.storage.local import LocalStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_MAX_BYTES: Final = 2**16
_KEY_TEXT = re.compile(r"\s*(?:-----BEGIN |(?:ssh|ecdsa|sk)-\S+ )")
_OPENSSH: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_SIGN_BIT: Final = 0x80
_SMALL_ORDER: Final = frozenset(
    bytes.fromhex(text)
    for text in (
        "0000000000000000000000000000000000000000000000000000000000000000",  # y = 0, of order 4
        "0100000000000000000000000000000000000000000000000000000000000000",  # y = 1, of order 1
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",  # of order 8
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",  # of order 8
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p - 1, of order 2
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p, which is 0
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p + 1, which is 1
    )
)
"""Every encoding (RFC 8032, section 5.1.2) of the eight points of small order, without the sign bit of x.

A public key among them proves nothing: some signatures are valid for any text. The list is that of libsodium
(ge25519_has_small_order); the tests compute it again.
"""

_NEW_KEY: Final = "To create a key: ssh-keygen -t ed25519 -f FILE"


def key_id(key: Ed25519PublicKey) -> str:
    """The name of a key: ``sha256:`` and 64 hex digits over the 32 bytes of its public half."""
    return f"sha256:{hashlib.sha256(key.public_bytes_raw()).hexdigest()}"


def load_private_key(path: str | os.PathLike[str], password: str | None = None) -> Ed25519PrivateKey:
    """The private key in a file in PEM (PKCS #8) or OpenSSH format, encrypted or not.

    Args:
        path: the path of the file.
        password: the password of an encrypted key; None for an unencrypted one.

    Raises:
        StorageError: the file cannot be read.
        UsageError: the file is not a private Ed25519 key, or ``password`` is wrong or missing.
        MissingExtraError: ``cryptography`` is not installed, or ``bcrypt`` for an encrypted key of OpenSSH.
    """
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    name, data = os.fspath(path), _read_key(path)
    is_openssh = _OPENSSH in data
    load = load_ssh_private_key if is_openssh else load_pem_private_key
    try:
        key = load(data, None if password is None else password.encode())
    except TypeError as error:
        if password is None:
            raise UsageError(
                f"the key {name} is encrypted",
                hint="Set its password: export REGISTRY_KEY_PASSWORD=...; in Python password=...",
            ) from error
        raise UsageError(
            f"the key {name} is not encrypted, but a password was given", hint="Leave out the password."
        ) from error
    except UnsupportedAlgorithm as error:
        if is_openssh:
            with require_extra("sign", package="bcrypt", needed_for="an encrypted key of OpenSSH"):
                import bcrypt  # noqa: F401
        raise _not_ed25519(name, "unknown") from error
    except ValueError as error:
        if b"PUBLIC KEY" in data or data.startswith(b"ssh-"):
            raise UsageError(
                f"{name} is a public key; signing needs the private key", hint="Use the file without .pub in its name."
            ) from error
        if password is not None:
            raise UsageError(f"the password of the key {name} is wrong, or the key is damaged") from error
        raise UsageError(f"{name} is not a private key in PEM or OpenSSH format", hint=_NEW_KEY) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _not_ed25519(name, _kind(key))
    return key


def load_public_key(path_or_text: str | os.PathLike[str]) -> Ed25519PublicKey:
    """A public key from a file or a text: PEM, or a line of OpenSSH (``ssh-ed25519 AAAA...``).

    Raises:
        StorageError: the file cannot be read.
        UsageError: the key is not a public Ed25519 key, or has small order, so that anybody can forge its signatures.
        MissingExtraError: ``cryptography`` is not installed.
    """
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key

    given = os.fspath(path_or_text)
    is_text = _KEY_TEXT.match(given) is not None
    name, data = ("the given key", given.encode()) if is_text else (given, _read_key(given))
    if b"PRIVATE KEY" in data:
        raise UsageError(
            f"{name} is a private key; signatures are checked with the public key",
            hint="Keep the private key secret, and use the file that ends with .pub.",
        )
    load = load_pem_public_key if b"-----BEGIN" in data else load_ssh_public_key
    try:
        key = load(data.strip() if load is load_ssh_public_key else data)
    except UnsupportedAlgorithm as error:
        raise _not_ed25519(name, "unknown") from error
    except ValueError as error:
        raise UsageError(f"{name} is not a public key in PEM or OpenSSH format", hint=_NEW_KEY) from error
    if not isinstance(key, Ed25519PublicKey):
        raise _not_ed25519(name, _kind(key))
    raw = key.public_bytes_raw()
    if raw[:-1] + bytes([raw[-1] & ~_SIGN_BIT]) in _SMALL_ORDER:
        raise UsageError(
            f"{name} is a key of small order: anybody can forge its signatures",
            hint="Programs do not create such keys by accident. Ask the signer for the right key over another channel.",
        )
    return key


def new_key(path: str | os.PathLike[str], password: str | None = None) -> str:
    """Write a new key to ``path``, readable by its owner only, and its public half to ``path`` with ``.pub`` added.

    Args:
        path: the path of the private key; an existing file is not replaced.
        password: encrypts the private key; None writes it unencrypted.

    Returns:
        The name of the key (``key_id``).

    Raises:
        AlreadyStoredError: one of the two files exists. Neither is written.
        StorageError: a file cannot be written.
        UsageError: the password is empty.
        MissingExtraError: ``cryptography`` is not installed.
    """
    _need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if password is not None and not password:
        raise UsageError("the password is empty", hint="Use a password that is not empty, or leave it out.")
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    private = expand_home(path)
    if not private.name:
        raise UsageError("the path of the key file is empty", hint="Name a key file.")
    public = private.with_name(f"{private.name}.pub")
    key = Ed25519PrivateKey.generate()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _write_new(private, key.private_bytes(pem, form, encryption), mode=0o600)
    try:
        told = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        _write_new(public, told, mode=0o644)
    except BaseException:
        private.unlink(missing_ok=True)  # created above
        raise
    return key_id(key.public_key())


def _write_new(path: Path, data: bytes, *, mode: int) -> None:
    """Write a new file atomically, so that a partial key, or a key that others may read, never exists."""
    place = path.absolute()
    with LocalStore(place.parent).create_path(place.name) as temporary, storage_errors("write", str(path)):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def _read_key(path: str | os.PathLike[str]) -> bytes:
    if not os.fspath(path):
        raise UsageError("the path of the key file is empty", hint="Name a key file.")
    place = expand_home(path)
    with storage_errors("read", str(place)):
        data = read_file(place)
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{os.fspath(path)} is not a key: it is longer than {_MAX_BYTES} bytes")
    return data


def _kind(key: Any) -> str:
    """The common name of a type of key: ``RSA`` for an RSAPrivateKey."""
    kind = re.sub(r"^_*|(?:Private|Public)Key$", "", type(key).__name__)
    return {"EC": "ECDSA", "EllipticCurve": "ECDSA"}.get(kind, kind)


def _not_ed25519(name: str, kind: str) -> UsageError:
    return UsageError(f"{name} is a key of the type {kind}; pins are signed only with Ed25519", hint=_NEW_KEY)


def _need_cryptography() -> None:
    with require_extra("sign", package="cryptography", needed_for="a signature"):
        import cryptography  # noqa: F401
