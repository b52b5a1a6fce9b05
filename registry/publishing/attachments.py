"""The files of attachments: written next to the shards before the row names them, and verified before they are used.

    documents of folds -> .attachments/<sha256>_<name> in the folder of the version -> row

If a version was published in place, its attachments are in the folder of the data directory that it would otherwise
have. If a program is killed between the file and the row, repeating the call finds the file again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from registry.errors import (
    AlreadyStoredError,
    ConflictError,
    MissingExtraError,
    NotFoundError,
    NotStoredError,
    ShardMismatchError,
    StorageError,
    StorageUnavailableError,
    UsageError,
)
from registry.model import ATTACHMENTS_FOLDER, Attachment, DatasetVersion, is_absolute, version_folder
from registry.storage import Store, open_location
from registry.storage.staged import owner_text

if TYPE_CHECKING:  # a reader of attachments verifies nothing else
    from registry.building.publication_folds import Documents
    from registry.catalog import CatalogBackend, VersionSize
    from registry.publishing.verify import ShardFault

CLAIM_SUFFIX: Final = "~claim"
"""Ends the name of the claim to a file that no row names yet. No name of an attachment contains ``~``."""

MOST_BYTES: Final = 64 * 2**20
"""The largest attachment that is read into memory."""


def with_contents(documents: Documents) -> dict[Attachment, bytes]:
    """The attachments of documents, each with its bytes. Documents that are too large to read are left out."""
    readable = {names: content for names, content in documents.items() if len(content) <= MOST_BYTES}
    return {Attachment.of(*names, content): content for names, content in readable.items()}


def put_attachments(folder: Store, contents: Mapping[Attachment, bytes]) -> None:
    """Write the attachments that the folder of a version lacks, and replace damaged ones.

    Raises:
        StorageError: a file cannot be written.
    """
    for attachment, content in contents.items():
        if not is_intact(folder, attachment):
            with suppress(AlreadyStoredError):  # another publisher writes the same bytes
                folder.write_bytes(attachment.place, content, overwrite=folder.exists(attachment.place))


def is_intact(folder: Store, attachment: Attachment) -> bool:
    """Whether the folder of a version has the attachment."""
    try:
        return not _difference(folder, attachment)
    except NotStoredError:
        return False


def attach(
    catalog: CatalogBackend, data: Store, version: DatasetVersion, attachment: Attachment, content: bytes, *, actor: str
) -> bool:
    """Attach a file to a published version: first its bytes, then its row. False if it was already attached.

    Args:
        catalog: the catalog of the version.
        data: its data directory.
        version: the version.
        attachment: the facts of the file.
        content: the bytes of the file.
        actor: the actor, for the event log.

    Raises:
        VersionNotFoundError: the version is not published.
        ConflictError: the version has another attachment of this kind and name.
        UsageError: the bytes do not match the attachment, or are more than ``MOST_BYTES``.
        StorageError: the file cannot be written.
    """
    if Attachment.of(attachment.kind, attachment.name, content) != attachment:
        raise UsageError(f"these are not the bytes of {attachment.name}: expected sha256 {attachment.sha256[:12]}")
    if attachment.num_bytes > MOST_BYTES:
        raise UsageError(
            f"the attachment {attachment.name} has {attachment.num_bytes:,} bytes, more than the {MOST_BYTES:,} that "
            "are read into memory",
            hint="Attach it in smaller parts, each under its own name.",
        )
    folder = data.child(home_of(version))

    def put() -> None:
        put_attachments(folder, {attachment: content})

    return attach_files(catalog, data, version, {attachment: put}, actor=actor)


def attach_files(
    catalog: CatalogBackend,
    data: Store,
    version: DatasetVersion,
    files: Mapping[Attachment, Callable[[], None]],
    *,
    actor: str,
) -> bool:
    """Attach several files, each with a function that writes it if missing, and write their rows in one transaction.

    Until the rows are written, a claim next to each file names this process and its catalog. If the process is killed,
    ``registry gc`` can identify the owner of the files.
    """
    home = home_of(version)
    folder, written = data.child(home), list[str]()
    with data.exclusive(f"{home}/{ATTACHMENTS_FOLDER}/claims"):
        for attachment, put in files.items():
            if not is_intact(folder, attachment):
                folder.write_bytes(attachment.place + CLAIM_SUFFIX, owner_text(data.catalog), overwrite=True)
                put()
                written.append(attachment.place)
        try:
            result = catalog.attach(version, *files, actor=actor)
        except (ConflictError, NotFoundError):
            for place in written:
                folder.remove(place)
                folder.remove(place + CLAIM_SUFFIX)
            raise
        with suppress(StorageError):
            for attachment in files:
                folder.remove(attachment.place + CLAIM_SUFFIX)
        return result


def copy_attachments(folder: Store, attachments: Mapping[Attachment, tuple[Store, str]]) -> None:
    """Copy the files of attachments that the folder of a version lacks, each from a store and its name there.

    Raises:
        StorageError: a file cannot be read or written, or does not match its row.
    """
    for attachment, (source, name) in attachments.items():
        if not is_intact(folder, attachment):
            if folder.exists(attachment.place):  # it is damaged
                folder.remove(attachment.place)
            with suppress(AlreadyStoredError):  # another publisher writes the same bytes
                folder.create_from(attachment.place, source, name, sha256=attachment.sha256)


def home_of(version: DatasetVersion | VersionSize, locations: Iterable[str] | None = None) -> str:
    """The folder below the data directory in which attachments of a version are written, if it has ``locations``."""
    places = version.locations if locations is None else locations
    first = next((location for location in places if not is_absolute(location)), None)
    # The first name of the dataset: the folder stays the same if it is renamed.
    name = (*version.names, version.name)[0]
    return version_folder(name, version.config, version.version) if first is None else first


def attachment_folders(data: Store, version: DatasetVersion) -> Iterator[Store]:
    """The folders that may contain the attachments of a version, in the order in which they are read."""
    return _open_folders(data, (*version.locations, home_of(version)))


def _open_folders(data: Store, locations: Iterable[str]) -> Iterator[Store]:
    for location in dict.fromkeys(locations):
        with suppress(StorageError, MissingExtraError):  # this machine cannot open such a place
            yield open_location(data, location)


def find_faults(data: Store, locations: Sequence[str], attachments: Iterable[Attachment]) -> Iterator[ShardFault]:
    """The fault of each attachment whose file is missing, or differs in the first of the folders that has it."""
    from registry.publishing.verify import ShardFault

    for attachment in attachments:
        problem = f"{attachment.place}: no such file"
        for folder in _open_folders(data, locations):
            try:
                problem = _difference(folder, attachment)
            except NotStoredError:
                continue
            except StorageUnavailableError:  # says nothing about the file
                raise
            except StorageError as error:
                problem = error.message
            break
        if problem:
            yield ShardFault(split="", filename=attachment.place, code=ShardMismatchError.code, problem=problem)


def _difference(folder: Store, attachment: Attachment) -> str:
    """How a file differs from its row, or ``""`` if it matches."""
    if (size := folder.size(attachment.place)) != attachment.num_bytes:
        return f"{attachment.place}: size mismatch: expected {attachment.num_bytes} bytes, found {size}"
    if (digest := folder.sha256(attachment.place)) != attachment.sha256:
        return f"{attachment.place}: sha256 mismatch: expected {attachment.sha256}, found {digest}"
    return ""


def find_files(
    data: Store, version: DatasetVersion, attachments: Iterable[Attachment]
) -> tuple[dict[Attachment, Store], list[str]]:
    """The first folder that has the bytes of each attachment, and a note for each that is in no folder.

    Raises:
        StorageUnavailableError: a folder does not answer, and no other folder has the attachment.
    """
    result, notes = {}, []
    for attachment in attachments:
        away, problem = None, "its file is damaged or missing"
        for folder in attachment_folders(data, version):
            try:
                if is_intact(folder, attachment):
                    result[attachment] = folder
                    break
            except StorageUnavailableError as error:  # says nothing about the file
                away = error
            except StorageError as error:
                problem = error.message
        else:
            if away is not None:
                raise away
            notes.append(f"the attachment {attachment.name} was not copied: {problem}")
    return result, notes


def read_attachment(data: Store, version: DatasetVersion, attachment: Attachment) -> bytes:
    """The bytes of an attachment, from the first folder that has them; compared with its sha256.

    Raises:
        NotStoredError: no folder has the file.
        ShardMismatchError: a file of its name has other bytes.
        StorageError: the file cannot be read, or is larger than ``MOST_BYTES``.
    """
    if attachment.num_bytes > MOST_BYTES:
        raise StorageError(
            f"the attachment {attachment.name} has {attachment.num_bytes:,} bytes, more than are read into memory",
            details={"path": attachment.place},
        )
    fault: StorageError | ShardMismatchError | None = None
    for folder in attachment_folders(data, version):
        try:
            content = folder.read_bytes(attachment.place, limit=attachment.num_bytes)
        except NotStoredError as error:
            fault = fault or error
            continue
        except StorageError as error:
            fault = error
            continue
        digest = hashlib.sha256(content).hexdigest()
        if digest == attachment.sha256:
            return content
        fault = ShardMismatchError(
            f"{folder.locate(attachment.place)}: sha256 mismatch: expected {attachment.sha256}, found {digest}",
            hint=f"The attachment {attachment.name} is damaged. Restore the file from a copy of the folder.",
            details={"path": attachment.place},
        )
    if fault is None or isinstance(fault, NotStoredError):
        raise NotStoredError(
            f"the attachment {attachment.name} of {version.reference} is in none of its folders",
            hint=f"Restore the file from a copy of the folder: {attachment.place}",
            details={"path": attachment.place},
        ) from fault
    raise fault
