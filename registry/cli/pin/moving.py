"""``registry pin restore``, ``bundle``, ``keygen``, ``sign`` and ``check``: get pinned files, pack and sign them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from registry.cli.commands import Session, session_command
from registry.cli.options import PinPlaces, file_argument, names_argument, pin_data_dir_option, places_options
from registry.cli.output import Block, Note, size
from registry.cli.pin.showing import count_bytes, note_yanks, open_pins
from registry.cli.progress import progress_bar
from registry.envelope import fields_of
from registry.environment import read_variable
from registry.errors import AlreadyStoredError, NotStoredError, SignatureError, StorageError, UsageError
from registry.splits import counted
from registry.storage import Store, open_store

if TYPE_CHECKING:
    from registry.pins import PinFile


@session_command("restore", data_dir=pin_data_dir_option)
@file_argument
@names_argument
@click.option("--to", "target", required=True, metavar="DIR", help="A data directory; created if it does not exist.")
@places_options
@click.option("--force", is_flag=True, help="Replace existing files that have other bytes.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied from where, and write nothing.")
def restore(
    session: Session,
    file: str,
    names: tuple[str, ...],
    *,
    target: str,
    places: PinPlaces,
    force: bool,
    dry_run: bool,
) -> None:
    """Copy the files of all pins, or of NAME, to DIR from any place that has them, and verify each sha256.

    Correct files are kept, so an interrupted restore can be continued. If a file in a place has other bytes, the next
    place is tried. Places that only the pins name are used if you allow them. The folders of a catalog are used if
    --catalog names it, or if it is a service for which you have a token.

    Examples:
        registry pin restore dataset.lock.yaml --to ~/datasets
        registry pin restore dataset.lock.yaml train --to ~/datasets --dry-run
        registry pin restore dataset.lock.yaml --to ~/datasets --catalog https://catalog.example
    """
    from registry.pins.restore import restore as restore_files

    pins = open_pins(file, places, session)
    chosen = pins.choose(names)
    note_yanks(session, chosen)
    with progress_bar(session.out, "restoring", count_bytes(chosen), in_bytes=True) as advance:
        report = restore_files(pins, names or None, target, force=force, dry_run=dry_run, advance=advance)
    value = {
        "file": file,
        **fields_of(report, "target", "dry_run", "num_bytes", "num_bytes_copied"),
        "files": [fields_of(path, "path", "num_bytes", "source", "problems") for path in report.files],
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        done = "would copy" if it["dry_run"] else "copied"
        there = len(it["files"]) - len(report.copied)
        yield (
            f"{done} {counted(len(report.copied), 'file')} ({size(it['num_bytes_copied'])}) to {target}"
            + (f"; {counted(there, 'file')} {'was' if there == 1 else 'were'} there" if there else "")
        )
        for path in it["files"]:
            yield from (Note(f"{path['path']}: {problem}") for problem in _worrying(path["problems"]))

    session.out.present("pin.restore", value, human)


@session_command("bundle", data_dir=pin_data_dir_option)
@file_argument
@names_argument
@click.option(
    "-o", "--output", required=True, metavar="TAR", type=click.Path(dir_okay=False), help="The archive: *.tar"
)
@places_options
@click.option("--force", is_flag=True, help="Replace TAR if it exists.")
def bundle(session: Session, file: str, names: tuple[str, ...], *, output: str, places: PinPlaces, force: bool) -> None:
    """Pack pins, only the shards that they need, their citations and a verifier into one archive.

    The verifier, verify.py, needs only Python, so it works even without this software. The same pins give the same
    archive, byte for byte. A signature next to FILE is included if it belongs to the pin file in the archive. The
    folders of a catalog are also searched if --catalog names it, or if it is a service for which you have a token.

    Examples:
        registry pin bundle dataset.lock.yaml -o paper.tar
        tar xf paper.tar && python3 -I -S paper/verify.py
    """
    from registry.pins.bundle import write_bundle
    from registry.pins.cite import cite_bibtex, cite_text

    pins = open_pins(file, places, session)
    chosen = pins.only(names) if names else pins
    signature, note = _signature(file, chosen, pins)
    if note is not None:
        session.out.note(note)
    texts = {"CITATION.bib": cite_bibtex(chosen), "CITATION.txt": cite_text(chosen)} | signature
    with progress_bar(session.out, "packing", count_bytes(pins.choose(names)), in_bytes=True) as advance:
        try:
            report = write_bundle(chosen, output, force=force, citation_texts=texts, advance=advance)
        except AlreadyStoredError as error:
            error.hint = "Name another file with -o, or replace it with --force."
            raise
    value = {
        "bundle": output,
        "digest": chosen.digest,
        **fields_of(report, "sha256", "num_bytes", "members"),
        "pins": list(chosen),
    }

    def human(it: dict[str, Any]) -> Iterator[Block]:
        name = Path(output).name
        shards = counted(len({member for member in it["members"] if "/data/" in member}), "shard")
        yield f"wrote {output}: {counted(len(chosen), 'pin')}, {shards}, {size(it['num_bytes'])}"
        yield from map(Note, _worrying(report.problems))
        yield f"check it anywhere with: tar xf {name} && python3 {name.removesuffix('.tar')}/verify.py"

    session.out.present("pin.bundle", value, human)


def _worrying(problems: Sequence[str]) -> list[str]:
    """The problems to print for people, without places that lack a file. JSON contains all problems."""
    from registry.pins.places import NO_SUCH_FILE

    return [problem for problem in problems if not problem.endswith(f": {NO_SUCH_FILE}")]


def _signature(file: str, chosen: PinFile, pins: PinFile) -> tuple[dict[str, str], str | None]:
    """The signature next to a pin file if it signs the bytes in the bundle, or a note why it is left out."""
    from registry.pins.signature import read_signed_sha256

    store, name = _folder_and_name(file)
    path = f"{file}.sig"
    try:
        envelope = store.read_bytes(f"{name}.sig")
        signed = read_signed_sha256(envelope)
        if signed == hashlib.sha256(chosen.to_yaml().encode()).hexdigest():
            return {"dataset.lock.yaml.sig": envelope.decode()}, None
        if signed != hashlib.sha256(store.read_bytes(name)).hexdigest():
            return {}, f"note: {path} is left out of the bundle: it does not sign the current content of {file}"
    except NotStoredError:
        return {}, None
    except (StorageError, SignatureError) as error:
        return {}, f"note: {path} is left out of the bundle: {error.message}"
    if chosen.digest != pins.digest:
        return {}, f"note: {path} is left out of the bundle: it signs all pins of {file}"
    return {}, (
        f"note: {path} is left out of the bundle: {file} has comments or its own formatting, which the bundle does "
        "not keep"
    )


_PASSWORD_VARIABLE: Final = "REGISTRY_KEY_PASSWORD"  # noqa: S105 (the name of a variable)


@session_command("keygen", catalog=False)
@click.argument("path", metavar="PATH", type=click.Path(dir_okay=False))
def keygen(session: Session, path: str) -> None:
    """Make an Ed25519 key pair: the private key in PATH, the public one in PATH.pub. Existing files are never replaced.

    With $REGISTRY_KEY_PASSWORD the private key is encrypted. Keys of ssh-keygen -t ed25519 can be used as well.

    Examples:
        registry pin keygen paper.key
        REGISTRY_KEY_PASSWORD=... registry pin keygen paper.key
    """
    from registry.pins.keys import new_key

    key_id = new_key(path, read_variable(_PASSWORD_VARIABLE) or None)
    value = {"private_key": path, "public_key": f"{path}.pub", "key_id": key_id}

    def human(it: dict[str, str]) -> Iterator[str]:
        yield f"wrote {path}, which you must keep secret, and {it['public_key']}, which you give to your readers"
        yield f"key {it['key_id']}"

    session.out.present("pin.keygen", value, human)


@session_command("sign", catalog=False)
@file_argument
@click.option(
    "--key", required=True, metavar="KEY", type=click.Path(), help="Your private Ed25519 key: PEM or OpenSSH."
)
@click.option("-o", "--output", metavar="SIG", type=click.Path(), help="The signature.  [default: FILE.sig]")
def sign(session: Session, file: str, *, key: str, output: str | None) -> None:
    """Sign a pin file: an in-toto statement in a DSSE envelope, next to the file.

    Existing signatures of other people over the same file are kept, and yours is added. For an encrypted key, set
    $REGISTRY_KEY_PASSWORD.

    Examples:
        registry pin sign dataset.lock.yaml --key paper.key
        registry pin sign dataset.lock.yaml --key ~/.ssh/id_ed25519 -o dataset.sig
    """
    from registry.pins.keys import key_id, load_private_key
    from registry.pins.signature import sign_pin

    path = output or f"{file}.sig"
    store, name = _folder_and_name(path)
    before = store.read_bytes(name) if store.exists(name) else None
    private = load_private_key(key, read_variable(_PASSWORD_VARIABLE) or None)
    envelope = sign_pin(_read(file), private, name=Path(file).name, envelope=before)
    with store.create(name, overwrite=True) as target:
        target.write(envelope.encode())
    signer = key_id(private.public_key())
    value = {"file": file, "signature": path, "key_id": signer, "added": before is not None}
    session.out.present("pin.sign", value, lambda it: [f"wrote {it['signature']}, signed by {it['key_id']}"])


@session_command("check", catalog=False)
@file_argument
@click.option(
    "--key",
    "keys",
    required=True,
    multiple=True,
    metavar="KEY",
    help="The public key of an expected signer: a file, or its text. One of several is enough.",
)
@click.option("--signature", metavar="SIG", type=click.Path(), help="The signature.  [default: FILE.sig]")
def check(session: Session, file: str, *, keys: tuple[str, ...], signature: str | None) -> None:
    """Check that one of these keys signed exactly these bytes of a pin file; exit code 5 if none did.

    Examples:
        registry pin check dataset.lock.yaml --key paper.key.pub
        registry pin check dataset.lock.yaml --key alice.pub --key bob.pub --signature dataset.sig
    """
    from registry.pins.keys import load_public_key
    from registry.pins.signature import check_signature

    path = signature or f"{file}.sig"
    found = check_signature(_read(file), _read(path), [load_public_key(key) for key in keys])
    value = {
        "file": file,
        "signature": path,
        "key_ids": found.keyids,
        "signed_name": found.name,
        **fields_of(found, "unchecked", "sha256", "digest"),
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield f"{file} matches its signature, {it['digest']}"
        yield from (f"  by {key_id}" for key_id in it["key_ids"])
        yield from (f"  not checked, because its key was not given: {key_id}" for key_id in it["unchecked"])

    session.out.present("pin.check", value, human)


def _folder_and_name(path: str) -> tuple[Store, str]:
    """The folder of a file, and the file's name."""
    folder, slash, name = path.rpartition("/")
    if not name:
        raise UsageError(f"{path!r} is not the path of a file")
    return open_store(folder or slash or "."), name


def _read(path: str) -> bytes:
    store, name = _folder_and_name(path)
    return store.read_bytes(name)
