"""Errors on their way from a service to its client: problem documents of RFC 9457, with the code, hint and details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from registry import errors
from registry.envelope import to_plain
from registry.errors import (
    AlreadyStoredError,
    BuildError,
    CatalogPermissionError,
    CatalogRefusedError,
    CatalogUnavailableError,
    ConflictError,
    KeyRunningError,
    NotFoundError,
    NotStoredError,
    RegistryError,
    StorageUnavailableError,
    UsageError,
)

CONTENT_TYPE: Final = "application/problem+json"
UNAVAILABLE: Final = 503

_STATUS: Final[tuple[tuple[type[RegistryError], int], ...]] = (
    (KeyRunningError, 409),
    (CatalogRefusedError, 401),
    (CatalogPermissionError, 403),
    (NotFoundError, 404),
    (NotStoredError, 404),
    (ConflictError, 409),
    (AlreadyStoredError, 412),
    (CatalogUnavailableError, UNAVAILABLE),
    (StorageUnavailableError, UNAVAILABLE),
    (UsageError, 400),
    (BuildError, 422),
)
_OTHER: Final = 422


def status_of(error: RegistryError) -> int:
    """The status of an answer with this error; only 429 and 503 say that the same call may succeed later."""
    declared = error.details.get("http_status")
    if isinstance(declared, int):
        return declared
    return next((status for kind, status in _STATUS if isinstance(error, kind)), _OTHER)


def dump_error(error: RegistryError, *, request_id: str) -> dict[str, Any]:
    """The problem document of an error. ``error`` names its class, which tells more than its code."""
    return {
        "type": "about:blank",
        "title": type(error).__name__,
        "status": status_of(error),
        "detail": error.message,
        "code": error.code,
        "hint": error.hint,
        "details": to_plain(error.details),
        "request_id": request_id,
    }


def load_error(problem: Mapping[str, Any]) -> RegistryError | None:
    """The error of a problem document; None if it is not one of a registry.

    A class that this release does not have becomes a RegistryError with the message and the hint.
    """
    message, hint, details = problem.get("detail"), problem.get("hint"), problem.get("details")
    if not isinstance(message, str) or not isinstance(details, Mapping) or not isinstance(problem.get("code"), str):
        return None
    kind = getattr(errors, str(problem.get("title")), RegistryError)
    if not (isinstance(kind, type) and issubclass(kind, RegistryError)):
        kind = RegistryError
    error = kind.__new__(kind, message)
    RegistryError.__init__(error, message, hint=hint if isinstance(hint, str) else None, details=details)
    return error
