"""``registry pin keygen``, ``sign`` and ``check``: who says that this is the pin."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from registry.cli.options import Session, examples, session_command
from registry.cli.pin.files import file_argument
from registry.errors import UsageError
from registry.storage import Store, open_store

_PASSWORD_VARIABLE: Final = "REGISTRY_KEY_PASSWORD"  # noqa: S105 (the name of a variable)


@session_command(
    "keygen",
    catalog=False,
    epilog=examples("registry pin keygen paper.key", "REGISTRY_KEY_PASSWORD=... registry pin keygen paper.key"),
)
@click.argument("path", metavar="PATH", type=click.Path(dir_okay=False))
def keygen(session: Session, path: str) -> None:
    """Make an Ed25519 key pair: the private key in PATH, the public one in PATH.pub. Nothing is replaced.

    With $REGISTRY_KEY_PASSWORD the private key is encrypted. Keys of ssh-keygen -t ed25519 can be used as well.
    """
    from registry.pins.keys import new_key

    key_id = new_key(path, os.environ.get(_PASSWORD_VARIABLE) or None)
    data = {"private_key": path, "public_key": f"{path}.pub", "key_id": key_id}

    def human() -> None:
        session.out.line(f"wrote {path}, which stays with you, and {path}.pub, which goes to your readers")
        session.out.line(f"key {key_id}")

    session.out.result("pin.keygen", data, human)


@session_command(
    "sign",
    catalog=False,
    epilog=examples(
        "registry pin sign dataset.lock.yaml --key paper.key",
        "registry pin sign dataset.lock.yaml --key ~/.ssh/id_ed25519 -o dataset.sig",
    ),
)
@file_argument
@click.option(
    "--key", required=True, metavar="KEY", type=click.Path(), help="Your private Ed25519 key: PEM or OpenSSH."
)
@click.option("-o", "--output", metavar="SIG", type=click.Path(), help="The signature.  [default: FILE.sig]")
def sign(session: Session, file: str, *, key: str, output: str | None) -> None:
    """Sign a pin file: an in-toto statement in a DSSE envelope, beside the file.

    A signature that is there, of others over the same file, is kept, and yours is added. $REGISTRY_KEY_PASSWORD opens
    an encrypted key.
    """
    from registry.pins.keys import key_id, load_private_key
    from registry.pins.signature import sign_pin

    path = output or f"{file}.sig"
    store, name = _place(path)
    before = store.read_bytes(name) if store.exists(name) else None
    private = load_private_key(key, os.environ.get(_PASSWORD_VARIABLE) or None)
    envelope = sign_pin(_read(file), private, name=Path(file).name, envelope=before)
    with store.create(name, overwrite=True) as target:
        target.write(envelope.encode())
    signer = key_id(private.public_key())
    data = {"file": file, "signature": path, "key_id": signer, "added": before is not None}
    session.out.result("pin.sign", data, lambda: session.out.line(f"wrote {path}, signed by {signer}"))


@session_command(
    "check",
    catalog=False,
    epilog=examples(
        "registry pin check dataset.lock.yaml --key paper.key.pub",
        "registry pin check dataset.lock.yaml --key alice.pub --key bob.pub --signature dataset.sig",
    ),
)
@file_argument
@click.option(
    "--key",
    "keys",
    required=True,
    multiple=True,
    metavar="KEY",
    help="The public key of who should have signed: a file, or its text. One of several is enough.",
)
@click.option("--signature", metavar="SIG", type=click.Path(), help="The signature.  [default: FILE.sig]")
def check(session: Session, file: str, *, keys: tuple[str, ...], signature: str | None) -> None:
    """Check that one of these keys signed exactly these bytes of a pin file; exit code 5 if none did."""
    from registry.pins.keys import load_public_key
    from registry.pins.signature import check_signature

    path = signature or f"{file}.sig"
    found = check_signature(_read(file), _read(path), [load_public_key(key) for key in keys])
    data = {
        "file": file,
        "signature": path,
        "key_ids": list(found.keyids),
        "unchecked": list(found.unchecked),
        "signed_name": found.name,
        "sha256": found.sha256,
        "digest": found.digest,
    }

    def human() -> None:
        session.out.line(f"{file} is as it was signed, {found.digest}")
        for one in found.keyids:
            session.out.line(f"  by {one}")
        for one in found.unchecked:
            session.out.line(f"  not checked, for its key was not given: {one}")

    session.out.result("pin.check", data, human)


def _place(path: str) -> tuple[Store, str]:
    """The folder of a file, and the file's name."""
    place = Path(path).expanduser().absolute()
    if not place.name:
        raise UsageError(f"{path!r} names no file")
    return open_store(place.parent), place.name


def _read(path: str) -> bytes:
    store, name = _place(path)
    return store.read_bytes(name)
