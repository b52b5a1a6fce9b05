"""Describes the error that ended a command: its message, its hint and its exit code.

``cli/main`` passes every exception to this module. Errors of the registry have their own messages. For errors of the
operating system, the network, the database and an author's code, this module finds the cause. Only the remaining
errors are reported as faults of the registry.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from registry.errors import RegistryError
from registry.masking import MASK, may_hide_secret
from registry.plugins import BUILDERS, COMMANDS, ENGINES, list_plugins

TEMPORARY: Final = 75
"""The exit code EX_TEMPFAIL of sysexits.h: the same command may succeed later."""

_OS_HINTS: Final = {
    errno.ENOSPC: "Free some space, or write to another disk.",
    errno.EDQUOT: "Your disk quota is used up: free some space, or write to another disk.",
    errno.EFBIG: "The file would be larger than its file system or your limit allows: see ulimit -f.",
    errno.EACCES: "Check the owner and permissions of the file and its folder.",
    errno.EPERM: "Check the owner and permissions of the file and its folder.",
    errno.EROFS: "The file system is mounted read-only: use another folder.",
    errno.EMFILE: "Too many files are open: raise the limit with ulimit -n, or use fewer processes.",
    errno.ENFILE: "Too many files are open on this machine: try again later, or raise its limit.",
    errno.ENOENT: "Check the name, and that its disk is mounted.",
    errno.ENAMETOOLONG: "Use a shorter path: most systems allow names of 255 bytes.",
    errno.ELOOP: "A link points to itself: check the path.",
    errno.ENOTDIR: "A file is in the place of a folder: check the path.",
    errno.ENOMEM: "Free some memory, or use fewer processes.",
    errno.EIO: "The disk could not be read or written: check the disk and the system log.",
}
_TEMPORARY_ERRNOS: Final = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EPIPE,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
    }
)
_NETWORK_LIBRARIES: Final = frozenset(
    {"aiohttp", "asyncio", "botocore", "h11", "http", "httpcore", "httpx", "obstore", "requests", "ssl", "urllib3"}
)
_DATABASE_LIBRARIES: Final = frozenset({"psycopg", "sqlalchemy", "sqlite3"})
_PACKAGE_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})
_TRY_AGAIN: Final = "Check the network, then try again."


class Failure(NamedTuple):
    """An error as the command line reports it. ``code`` is the stable name that programs get."""

    code: str
    message: str
    hint: str | None
    exit_code: int = 1
    details: dict[str, object] = {}  # noqa: RUF012 (never changed)


def describe_failure(error: BaseException, *, received: int = 0) -> Failure:
    """Describe ``error``.

    Args:
        error: the exception that ended the command.
        received: the signal that interrupted the command: 2 for Ctrl-C, 15 for SIGTERM. After a signal, requests that
            are cut off in other threads or during clean-up fail with errors of the registry, which are not the cause.
    """
    if isinstance(error, BaseExceptionGroup):  # the first cause: the others are usually the same
        return describe_failure(error.exceptions[0], received=received)
    if isinstance(error, KeyboardInterrupt | click.Abort) or (received and isinstance(error, RegistryError)):
        hint = "No unfinished change is visible. Run the same command again to finish."
        return Failure("interrupted", "interrupted", hint, 128 + (received or signal.SIGINT))
    if isinstance(error, RegistryError):
        return Failure(error.code, error.message, error.hint, error.exit_code, error.details)
    if isinstance(error, click.ClickException):
        return _describe_click(error)
    if (line := _author_line(error)) is not None:
        hint = f"Correct {line[0]}. Set REGISTRY_DEBUG=1 to see the whole traceback."
        details: dict[str, object] = {"path": line[0], "line": line[1]}
        message = f"{type(error).__name__}: {error} ({line[0]}, line {line[1]})"
        return Failure("failure", message, hint, 1, details)
    if isinstance(error, OSError):
        return _describe_os(error)
    return _describe_other(error)


def argument_hider(arguments: Iterable[str]) -> Callable[[Any], Any]:
    """Return a function that replaces arguments that may contain a password with ``***``, in text or in details.

    A message may repeat any argument, such as the words of a split expression, and few of them are parsed as URLs.
    """
    values = {part for text in arguments for part in (text, text.partition("=")[2] if text.startswith("-") else "")}
    values |= {value for name, value in os.environ.items() if name.startswith("REGISTRY_")}
    forms: set[str] = set()
    for value in filter(may_hide_secret, values):
        spellings = (value, os.path.normpath(value), repr(value)[1:-1], shlex.quote(value), value.strip("/"))
        # Messages cut off long texts.
        forms |= {text[:length] for text in spellings for length in (len(text), 200, 100, 80, 60, 40) if text}
    ordered = sorted(forms, key=len, reverse=True)

    def hide(value: Any) -> Any:
        if isinstance(value, str):
            for form in ordered:
                value = value.replace(form, MASK)
            return value
        if isinstance(value, Mapping):
            return {hide(key): hide(item) for key, item in value.items()}
        return [hide(item) for item in value] if isinstance(value, list | tuple) else value

    return hide


def _describe_click(error: click.ClickException) -> Failure:
    if not isinstance(error, click.UsageError):
        return Failure("failure", error.format_message(), None)
    hint = f"See {error.ctx.command_path if error.ctx else 'registry'} --help."
    if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.parent is None:
        hint = f"Put options after the command: registry COMMAND {error.option_name}. {hint}"
    elif isinstance(error, click.NoSuchOption):
        hint += " Put values that start with '-' after '--'."
    message = error.format_message()
    if may_hide_secret(message.partition("(")[2]):  # "Got unexpected extra argument (password=PW)", of an unquoted DSN
        message = message.partition(" (")[0]
        hint += " Put text with spaces in quotes."
    return Failure("usage", message, hint, 2)


def _full_folder() -> str:
    """The full folder of a write without a file name: that of the redirected output, or else of temporary files."""
    for stream in (1, 2):
        try:
            path = os.readlink(f"/proc/self/fd/{stream}")  # noqa: PTH115 (Path.readlink is slower to import)
            if path.startswith("/") and not os.isatty(stream):
                return f"{Path(path).parent}, to which the output is written"
        except OSError:  # closed, or a system without this folder
            continue
    import tempfile

    return f"{tempfile.gettempdir()}, or on another disk"


def _has_working_folder() -> bool:
    try:
        return bool(os.getcwd())  # noqa: PTH109 (only its existence matters)
    except FileNotFoundError:
        return False


def _describe_os(error: OSError) -> Failure:
    """Describe an error of the operating system or of a socket that was not converted to an error of the registry."""
    number = error.errno
    named = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    if number == errno.ENOSPC and not named:
        return Failure("failure", f"no space is left in {_full_folder()}", _OS_HINTS[errno.ENOSPC])
    if number == errno.ENOENT and not named and not _has_working_folder():
        return Failure(
            "failure", "the current folder was removed", "Change to another folder: cd", details={"errno": number}
        )
    library = type(error).__module__.partition(".")[0]
    is_temporary = (
        number in _TEMPORARY_ERRNOS
        or isinstance(error, ConnectionError | TimeoutError)
        or library in _NETWORK_LIBRARIES
        or library == "socket"  # gaierror: its numbers are not those of the system
    )
    reason = error.strerror or (os.strerror(number) if number else str(error)) or type(error).__name__
    hint = _OS_HINTS.get(number or 0, _TRY_AGAIN if is_temporary else "Set REGISTRY_DEBUG=1 to see where it happened.")
    return Failure("failure", f"{named}{reason}", hint, TEMPORARY if is_temporary else 1, {"errno": number})


def _describe_other(error: BaseException) -> Failure:
    name, library = f"{type(error).__name__}: {error}".rstrip(": "), type(error).__module__.partition(".")[0]
    if isinstance(error, MemoryError):
        hint = "Free some memory, read a smaller slice, or use fewer processes (-j 1)."
        return Failure("failure", "not enough memory", hint, TEMPORARY)
    if isinstance(error, UnicodeEncodeError):
        hint = "Check the arguments and the environment: file names in another encoding cannot be stored."
        return Failure("failure", f"a text is not valid Unicode: {error.object!a:.80}", hint)
    if isinstance(error, UnicodeDecodeError):
        hint = "Save the file as UTF-8. Set REGISTRY_DEBUG=1 to see which file it is."
        return Failure("failure", f"a file is not valid {error.encoding}: {error}", hint)
    if isinstance(error, RecursionError):
        hint = "Set REGISTRY_DEBUG=1 to see where it happened."
        return Failure("failure", "a file or a value is nested too deeply", hint)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return Failure("failure", "the system cannot start a thread", "Try again, or use fewer processes.", TEMPORARY)
    if isinstance(error, ImportError):
        hint = "Install the registry again: pip install --force-reinstall shardbook"
        return Failure("failure", name, hint)
    if library in _DATABASE_LIBRARIES:
        is_temporary = any(base.__name__ in ("OperationalError", "InterfaceError") for base in type(error).__mro__)
        hint = "Check that the database answers, then try again: registry db check"
        return Failure("catalog", f"the database refuses: {error}", hint, TEMPORARY if is_temporary else 1)
    if library in _NETWORK_LIBRARIES:
        return Failure("failure", f"the network failed: {name}", _TRY_AGAIN, TEMPORARY)
    hint = "This is a fault of the registry. Set REGISTRY_DEBUG=1 to see where, and report it."
    return Failure("internal", name, hint)


def _author_line(error: BaseException) -> tuple[str, int] | None:
    """File and line of the innermost frame of an author's code in the traceback, or None if it has only library code.

    An author's code is a file outside of the registry and of installed packages, or in a package with plugins.
    """
    import registry.builders  # in a checkout, it is outside of the package's folder

    ours = (Path(registry.__file__).parent, *registry.builders.__path__)
    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        is_file = os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises if a parent is unreadable)
        if any(map(path.is_relative_to, ours)) or not is_file:  # not <string> or <frozen importlib>
            continue
        is_installed = not _PACKAGE_FOLDERS.isdisjoint(path.parts)
        if _offers_plugins(path) if is_installed else not any(map(path.is_relative_to, standard)):
            return str(path), frame.lineno or 0
    return None


def _offers_plugins(path: Path) -> bool:
    """Whether ``path`` belongs to an installed package with builders, commands or engines of its own."""
    points = chain.from_iterable(map(list_plugins, (BUILDERS, COMMANDS, ENGINES)))
    packages = {point.module.partition(".")[0] for point in points} - {"registry"}
    return any(name in path.parts or name == path.stem for name in packages)
