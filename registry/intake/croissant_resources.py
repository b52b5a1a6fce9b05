"""Finds the files that a Croissant document lists: next to the document, with the digests that it states."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NoReturn
from urllib.parse import unquote

from registry.errors import SourceError
from registry.intake.archives import extract, is_archive
from registry.intake.croissant_document import Document, FileObject, FileSet
from registry.intake.source import Files, root_of

OTHER: Final = "Add the files themselves instead, without the document."
CHECK: Final = "Check the document: mlcroissant validate --jsonld FILE"

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Resources:
    """The files of a document.

    Args:
        document: the document.
        name: its file name.
        folder: the files next to it, and the document itself.

    Attributes:
        used: the names of the files of ``folder`` that were resolved, and of the document.
    """

    def __init__(self, document: Document, name: str, folder: Files) -> None:
        self.used: set[str] = {name}
        self._document = document
        self._name = name
        self._folder = folder

    def resolve(self, resource: str) -> Files:
        """The files of a FileObject or FileSet; archives are extracted.

        Raises:
            SourceError: the document does not list it, a file is missing, has another sha256, or is not next to the
                document, or an archive is damaged.
        """
        return self._resolve_within(resource, ())

    def fail(self, problem: str, hint: str | None) -> NoReturn:
        """Raise a SourceError that names the document."""
        raise SourceError(f"{self._name}: {problem}", hint=hint, details={"file": self._name})

    def _resolve_within(self, resource: str, outer: tuple[str, ...]) -> Files:
        if resource in outer:
            self.fail(f"the file set {resource!r} contains itself", CHECK)
        found = self._document.files.get(resource)
        if found is None:
            self.fail(f"'distribution' does not list the file {resource!r}, which is read", CHECK)
        if isinstance(found, FileObject):
            files = self._file(found)
            return files if not is_archive(files.names[0]) else extract(files, files.names)
        listed = [self._document.files[one] for one in found.contained_in if one in self._document.files]
        # A Git repository, such as Hugging Face's documents name, is the folder of the document: its clone.
        containers = [one for one in listed if not one.encoding.startswith("git")]
        if containers and all(isinstance(one, FileSet) for one in containers):
            inside = {name for one in containers for name in self._resolve_within(one.id, (*outer, resource)).names}
            base = subset(self._folder, sorted(inside))
        elif containers:
            if len(containers) > 1:
                self.fail(f"the file set {found.id!r} is in several archives, which is not supported", OTHER)
            base = self._resolve_within(containers[0].id, (*outer, resource))
        else:
            base = subset(self._folder, [name for name in self._folder.names if name != self._name])
        patterns = [re.compile(fnmatch.translate(one)) for one in found.includes or ("*",)]
        without = [re.compile(fnmatch.translate(one)) for one in found.excludes]
        names = [
            name
            for name in base.names
            if any(one.fullmatch(name) for one in patterns) and not any(one.fullmatch(name) for one in without)
        ]
        if not names:
            self.fail(f"no file matches {', '.join(found.includes) or '*'}, the file set {found.id!r}", CHECK)
        if base.store is self._folder.store:
            self.used.update(names)
            self._check_listed(names)
        return subset(base, names)

    def _file(self, found: FileObject) -> Files:
        url = unquote(found.url)
        if found.contained_in:
            self.fail(f"the file {found.id!r} is in an archive, which is supported for file sets only", OTHER)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", url) or url.startswith(("/", "~")) or ".." in url.split("/"):
            self.fail(
                f"the file {found.id!r} is not next to the document: {url[:200]!r}",
                "Download it into the folder of the document, and write its relative path into contentUrl.",
            )
        name = url.removeprefix("./")
        if name not in set(self._folder.names):
            self.fail(f"the file {name!r} is missing", "Download it into the folder of the document.")
        self.used.add(name)
        self._check_sha256(name, found.sha256)
        return subset(self._folder, [name])

    def _check_listed(self, names: Sequence[str]) -> None:
        """Check the files of a set whose digests the document has, too."""
        digests = {unquote(one.url): one.sha256 for one in self._document.files.values() if isinstance(one, FileObject)}
        for name in names:
            self._check_sha256(name, digests.get(name, ""))

    def _check_sha256(self, name: str, expected: str) -> None:
        if not _SHA256.fullmatch(expected):  # often a placeholder, such as the URL of a GitHub issue
            return
        with (root_of(self._folder.store) / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise SourceError(
                f"{name}: sha256 mismatch: expected {expected}, as in {self._name}, found {found}",
                hint="Download the file again, or correct the document.",
                details={"file": name, "expected": expected, "found": found},
            )


def subset(files: Files, names: Sequence[str]) -> Files:
    """The files with these names, in the order of ``files``."""
    wanted = set(names)
    kept = [(name, size) for name, size in zip(files.names, files.sizes, strict=True) if name in wanted]
    return replace(files, names=[name for name, _ in kept], sizes=[size for _, size in kept], skipped=())
