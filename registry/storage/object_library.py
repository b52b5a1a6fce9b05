"""Loads and configures the library obstore, and converts its errors to ours; ``object_client`` uses it.

In a forked child, obstore hangs if its parent has used it, because its threads do not survive the fork. So a child
loads a second copy of the library.

obstore reads ``AWS_*``, ``GOOGLE_*`` and ``AZURE_*`` variables, web identities, containers' credentials and the
metadata services of the clouds. boto3, if it is installed and the environment has no keys, reads AWS profiles and
single sign-on. obstore reports errors as text; the status and the kind of a fault are parsed from it.
"""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from registry.errors import MissingExtraError, NotStoredError, StorageError, UsageError
from registry.masking import mask
from registry.storage.faults import already_stored, cannot, printable_cause, replaced
from registry.storage.network import TransientFault

_NATIVE: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""If one of these variables is set, obstore finds the credentials itself."""

_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

_BAD_PATH: Final = re.compile(r'Path "(.*?)"(?::| contained empty path segment)', flags=re.DOTALL)

_YES: Final = frozenset({"1", "true", "yes", "on", "y", "t"})


def bucket_options(scheme: str, *, doing: str, location: str) -> dict[str, Any]:
    """Return options for obstore's store of a scheme, in addition to the environment that obstore reads itself.

    Raises:
        StorageError: boto3 is installed, and finds no credentials.
        MissingExtraError: an AWS profile is configured, and boto3 is not installed.
        UsageError: the variable of an endpoint contains no URL.
    """
    for name in _ENDPOINTS[scheme]:
        _check_endpoint(name)
    options = _s3_options(doing=doing, location=location) if scheme == "s3" else {}
    client_options: dict[str, Any] = {}
    # obstore refuses http:// without `allow_http`. An http:// endpoint in the environment is deliberate.
    settings = [value for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]
    if any("http://" in value for value in [*settings, str(options.get("endpoint", ""))]):
        client_options["allow_http"] = True
    if scheme == "gs" and (project := os.environ.get("GOOGLE_CLOUD_QUOTA_PROJECT")):
        client_options["default_headers"] = {"x-goog-user-project": project}  # for buckets whose requesters pay
    return options | {"client_options": client_options}


def _check_endpoint(name: str) -> None:
    """Refuse an endpoint that is not a URL: with it, obstore aborts a thread and prints its stack."""
    value = os.environ.get(name, "")
    try:
        parts = urlsplit(value)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if value and not is_url:
        raise UsageError(
            f"{name} is {mask(value)!r}: expected a URL",
            hint=f"Set it to a URL, e.g. {name}=https://objects.example.org, or unset it.",
            details={"name": name},
        )


def bad_settings(error: Exception, scheme: str, *, doing: str, location: str) -> StorageError:
    """Make the error for settings that obstore refuses, without the values of variables."""
    reason = _STORE.sub("", str(error).partition("\n")[0]).rstrip(".")
    prefix = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}[scheme]
    for name, value in os.environ.items():
        if name.startswith(prefix) and len(value) > 3:
            reason = reason.replace(value, f"${name}")
    hint = f"Check the variables that begin with {prefix}. {credentials_hint(scheme)}"
    return cannot(doing, location, f"a setting is missing or invalid: {reason}", number=errno.EINVAL, hint=hint)


def no_credentials(location: str, *, doing: str) -> StorageError:
    """Make the error for missing credentials."""
    scheme = location.partition("://")[0]
    public = {"gs": "GOOGLE_SKIP_SIGNATURE", "az": "AZURE_SKIP_SIGNATURE"}.get(scheme, "AWS_SKIP_SIGNATURE")
    hint = f"{credentials_hint(scheme)} For a public bucket set {public}=true."
    return cannot(doing, location, "no credentials were found", number=errno.EACCES, hint=hint)


def credentials_hint(scheme: str) -> str:
    """Return the sentence that names the variables with the credentials of a scheme."""
    if scheme == "gs":
        return "Set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to the file of a key."
    if scheme == "az":
        return "Set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY."
    return "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."


def _endpoint_hint(path: str) -> str:
    if path.startswith("gs:"):
        return "Check its name, and GOOGLE_BASE_URL if the server is not Google's."
    if path.startswith("az:"):
        return "Check its name, AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ENDPOINT if it is another server."
    return "Check its name, and AWS_ENDPOINT_URL if the store is not Amazon's."


def _s3_options(*, doing: str, location: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if not os.environ.get("AWS_COPY_IF_NOT_EXISTS"):
        options["copy_if_not_exists"] = "multipart"  # Amazon's own servers support no other way
    if os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION", "").lower() != "when_required":
        options["checksum_algorithm"] = "sha256"  # the server compares it with the bytes that arrived
    anonymous = os.environ.get("AWS_SKIP_SIGNATURE", "").lower() in _YES
    if anonymous or any(os.environ.get(name) for name in _NATIVE):
        return options
    return options | _profile_options(doing=doing, location=location)


def _profile_options(*, doing: str, location: str) -> dict[str, Any]:
    """Read credentials, region and endpoint with boto3, from the files of the AWS command line or elsewhere."""
    try:
        import botocore.session
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        folder = Path("~/.aws").expanduser()
        profile = os.environ.get("AWS_PROFILE")
        if profile or (folder / "credentials").is_file() or (folder / "config").is_file():
            wanted = f"reading the AWS profile {profile or 'default'!r}"
            raise MissingExtraError(package="boto3", extra="aws", needed_for=wanted) from error
        return {}
    try:
        session = botocore.session.Session()
        provider = Boto3CredentialProvider(session)
        settings = session.get_scoped_config()
    except (BotoCoreError, ValueError) as error:  # ValueError: no credentials
        raise no_credentials(location, doing=doing) from error
    options: dict[str, Any] = {"credential_provider": provider}
    if not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION") and settings.get("region"):
        options["region"] = settings["region"]
    if not os.environ.get("AWS_ENDPOINT_URL") and settings.get("endpoint_url"):
        options["endpoint"] = settings["endpoint_url"]
    return options


_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Za-z][A-Za-z \-]*))?")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STORE: Final = re.compile(r"^Generic \w+ error: ")
_KIND: Final = re.compile(r"\bkind: (Timeout|Connect)\b")
_RETRIES: Final = re.compile(r"\bmax_retries: (\d+)")
_PASSING: Final = frozenset({408, 409, 425, 429})  # 409: another conditional request for that name is under way
_REFUSED: Final = frozenset({401, 403})
_FIRST_SERVER_FAULT: Final = 500
_METADATA_SERVICES: Final = ("169.254.169.254", "/latest/api/token", "metadata.google.internal")


def typed_fault(error: Exception, *, doing: str, path: str, bucket: str) -> StorageError | TransientFault:
    """Convert an error of obstore; ``doing`` and ``path`` complete "cannot <doing> <path>: ...".

    Returns a TransientFault if another attempt may succeed: no answer, half an answer, a server that is overloaded or
    broken. The text of ``error`` is not repeated: it is long, and may contain secrets.
    """
    text, name = str(error), type(error).__name__
    match = _STATUS.search(text)
    status = int(match[1]) if match else None
    answered = f"the server answered {status} {(match[2] or '').strip()}".rstrip() if match else ""

    def refusal(reason: str, hint: str | None, number: int, **details: Any) -> StorageError:
        kind = NotStoredError if number == errno.ENOENT else StorageError
        return cannot(doing, path, reason, number=number, hint=hint, kind=kind, **details)

    if misses_bucket(error):
        return refusal(f"the bucket {bucket!r} does not exist", _endpoint_hint(path), errno.ENOENT, bucket=bucket)
    if name == "AlreadyExistsError":
        return already_stored(path)
    if name == "PreconditionError":
        return replaced(path)
    if isinstance(error, FileNotFoundError):
        return refusal(os.strerror(errno.ENOENT), "Check the name, and that it is in this bucket.", errno.ENOENT)
    if any(service in text for service in _METADATA_SERVICES):
        return no_credentials(path, doing=doing)
    if status in _REFUSED:
        hint = "The store refuses these credentials. Check them, and their permissions for this bucket."
        if "RequestTimeTooSkewed" in text:  # S3 compares the time in a signature with its own clock
            hint = "The clock of this machine is more than 15 minutes off. Compare it with another clock: date -u"
        return refusal(f"{os.strerror(errno.EACCES)} ({answered})", hint, errno.EACCES, status=status)
    if name == "InvalidPathError" or "Could not parse path" in text or "Error parsing Path" in text:
        hint = "Object names must not contain empty parts or control characters."
        bad = _BAD_PATH.search(text)
        named = {} if bad is None else {"key": bad[1]}
        return refusal("the name is invalid in an object store", hint, errno.EINVAL, **named)
    if status is not None and status < _FIRST_SERVER_FAULT and status not in _PASSING:
        moved = "Set AWS_REGION to the region of the bucket." if status in (301, 307) else None
        return refusal(answered, moved, errno.EIO, status=status)
    kind = match[1] if (match := _KIND.search(text)) else ""
    reason, number = answered or "the connection broke off", errno.EIO if answered else errno.ECONNRESET
    if not answered and kind == "Timeout":
        reason, number = "the server did not answer in time", errno.ETIMEDOUT
    elif not answered and kind == "Connect":
        reason, number = "the server cannot be reached", errno.ECONNREFUSED
    retries = _RETRIES.search(text)
    return TransientFault(reason, number=number, was_retried=retries is not None and retries[1] != "0")


def printable_fault(error: Exception) -> BaseException:
    """Return the ``__cause__`` of the error that ``typed_fault`` makes, without the server's response.

    A server that refuses a signature repeats the request, including the session token, in its response, and tracebacks
    print the text of a cause. The status and the server's own error code remain.
    """
    text = str(error)
    status = _STATUS.search(text)
    if status is None:
        return printable_cause(error)
    code = _CODE.search(text)
    location = f"{type(error).__name__}: {mask(text[: status.end()])}{f' ({code[1]})' if code else ''}"
    return OSError(location).with_traceback(error.__traceback__)


def misses_bucket(error: Exception) -> bool:
    """Whether an error of obstore says that the bucket or container does not exist."""
    return any(code in str(error) for code in ("NoSuchBucket", "ContainerNotFound"))


def is_no_bucket(error: NotStoredError) -> bool:
    """Whether the bucket is missing, not only an object in it."""
    return "bucket" in error.details


def load_obstore(*, needed_for: str) -> ModuleType:
    """Return the package obstore with its modules ``store`` and ``exceptions``; a forked child gets its own copy.

    Raises:
        MissingExtraError: it is not installed.
        StorageError: this is a forked child, on a system where no copy can be loaded.
    """
    global _LOADED  # noqa: PLW0603 (one library for each process)
    with _LOCK:
        if _LOADED is None:
            try:
                import obstore
                import obstore.store
            except ImportError as error:
                raise MissingExtraError(package="obstore", extra="cloud", needed_for=needed_for) from error
            _LOADED = (os.getpid(), obstore, Path(obstore._obstore.__file__))
        elif _LOADED[0] != os.getpid():
            _, inherited, library = _LOADED
            _INHERITED.append(inherited)
            _LOADED = (os.getpid(), _load_copy(library), library)
        return _LOADED[1]


def _load_copy(library: Path) -> ModuleType:
    """Import obstore again, its compiled part from a file in memory, which the loader treats as another library.

    The threads and connections of the first copy belong to the parent. This is known to work on Linux only.
    """
    if not hasattr(os, "memfd_create"):
        raise StorageError(
            "object stores cannot be read in a forked process on this system",
            hint="Start processes with the method 'spawn', e.g. multiprocessing.set_start_method('spawn').",
        )
    descriptor = os.memfd_create("obstore")
    with open(descriptor, "wb", closefd=False) as copy, library.open("rb") as source:
        shutil.copyfileobj(source, copy, 2**20)
    place = f"/proc/self/fd/{descriptor}"

    class Finder:
        @staticmethod
        def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
            if name != "obstore._obstore":
                return None
            loader = importlib.machinery.ExtensionFileLoader(name, place)
            return importlib.util.spec_from_file_location(name, place, loader=loader)

    for name in [name for name in sys.modules if name == "obstore" or name.startswith("obstore.")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder)
    try:
        obstore = importlib.import_module("obstore")
        importlib.import_module("obstore.store")
    finally:
        sys.meta_path.remove(Finder)
        os.close(descriptor)
    return obstore


def _forget_locks() -> None:
    """In a forked child, make a new lock, because a lock that another thread of the parent held would stay locked."""
    global _LOCK  # noqa: PLW0603 (one for each process)
    _LOCK = threading.Lock()


_LOADED: tuple[int, ModuleType, Path] | None = None
_INHERITED: Final[list[ModuleType]] = []
"""Never collected: freeing the objects of the parent's library would wake its threads."""

_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks)
