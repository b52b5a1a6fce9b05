"""Which names may a store be asked for, and which mark something unfinished? Pure text, checked before any path."""

from __future__ import annotations

import re
import secrets
from typing import Final

from registry.errors import StorageError

OWNER_FILE: Final = ".owner.json"
"""Who is writing a staged folder; see ``staging``. Never listed as content."""

MARKER_FILE: Final = ".reservation.json"
"""Which catalog holds a version's place in an object store until its row is written. Never listed as content."""

OBJECT_SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az"}
"""The schemes of URLs that lead to object stores, and which kind each of them is."""

_OWN = re.compile(r"incomplete\.[0-9a-f]{8}(?P<owner>p[0-9a-f]+t[0-9]*)?_.*", flags=re.DOTALL)
_UNFINISHED = re.compile(r"incomplete\.[0-9A-Za-z]+_.*", flags=re.DOTALL)


def check_relative_name(name: str) -> str:
    """``name`` if it names something below a store's root: parts joined by ``/``, none of them empty, ``.`` or ``..``.

    A backslash is refused too: it separates folders on one system and is a letter on the next.

    >>> check_relative_name("1.0.0/features.json")
    '1.0.0/features.json'

    Raises:
        StorageError: the name is empty, absolute, or could leave the root.
    """
    parts = name.split("/")
    if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise StorageError(
            f"{name[:200]!r} does not name a file inside its store",
            hint="Names are relative to the store: parts joined by '/', without '..', '.' or a leading '/'.",
            details={"path": name[:200]},
        )
    return name


def check_folder_name(name: str) -> str:
    """Like ``check_relative_name``, and ``""`` names the root."""
    return name and check_relative_name(name)


def new_unfinished_name(last_part: str) -> str:
    """A fresh name ``incomplete.<8 hex>_<last part>``, the form that TFDS ignores too.

    The last part is shortened where the whole would be longer than file systems allow (255 bytes).
    """
    shortened = last_part.encode("utf-8", "surrogateescape")[:230].decode("utf-8", "ignore")
    return f"incomplete.{secrets.token_hex(4)}_{shortened}"


def new_unfinished_file(last_part: str, owner: str) -> str:
    """As ``new_unfinished_name``, for a file: ``incomplete.<8 hex><owner>_<last part>``, with the mark of its owner.

    A folder holds a file that says who writes it; for a file only its name can.
    """
    shortened = last_part.encode("utf-8", "surrogateescape")[:180].decode("utf-8", "ignore")
    return f"incomplete.{secrets.token_hex(4)}{owner}_{shortened}"


def owner_of_file(part: str) -> str | None:
    """The mark of the owner in a name that ``new_unfinished_file`` made, or None.

    >>> owner_of_file("incomplete.0a1b2c3dp00aat17_paper.tar"), owner_of_file("incomplete.0a1b2c3d_1.0.0")
    ('p00aat17', None)
    """
    found = _OWN.fullmatch(part)
    return None if found is None else found["owner"]


def is_unfinished(part: str) -> bool:
    """Whether one part of a name marks a file or folder that is still being written, or was left by a dead process.

    >>> is_unfinished("incomplete.0a1b2c3d_1.0.0"), is_unfinished("1.0.0")
    (True, False)
    """
    return _UNFINISHED.fullmatch(part) is not None


def is_own_staged(part: str) -> bool:
    """Whether ``new_unfinished_name`` or ``new_unfinished_file`` made this name: TFDS's have another form.

    >>> is_own_staged("incomplete.0a1b2c3d_1.0.0"), is_own_staged("incomplete.AB12CD_1.0.0")
    (True, False)
    """
    return _OWN.fullmatch(part) is not None


def is_content(name: str) -> bool:
    """Whether a relative file name belongs to what is stored: no part is unfinished, no owner file, no marker."""
    parts = name.split("/")
    return parts[-1] not in (OWNER_FILE, MARKER_FILE) and not any(map(is_unfinished, parts))
