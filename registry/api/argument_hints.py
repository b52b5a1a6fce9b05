"""Says the hints of ``registry add`` as arguments of ``Catalog.add``.

The functions below ``add`` are called from the command line and from Python, and write their hints as options. A caller
of ``Catalog.add`` has to read arguments: ``skip_bad=3`` for ``--skip-bad 3``. A word after an option is its value. If
an option has no value, the clause ends after it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from registry.errors import RegistryError, UsageError

_ARGUMENTS: Final = {
    "--as": "name",
    "--bump": "bump",
    "--config": "config",
    "--dates": "dates",
    "--delimiter": "delimiter",
    "--encoding": "encoding",
    "--feature": "features",
    "--from": "kind",
    "--header": "header",
    "--holdout": "holdout",
    "--in-place": "in_place",
    "--key": "key",
    "--key-by": "key_by",
    "--no-header": "header",
    "--no-path": "paths",
    "--null": "nulls",
    "--number": "number",
    "--path": "paths",
    "--records": "records",
    "--rename-column": "rename_columns",
    "--rename-config": "rename_configs",
    "--rename-split": "rename_splits",
    "--replace": "replace",
    "--retype": "retype",
    "--schema": "schema",
    "--skip-bad": "skip_bad",
    "--split": "splits",
    "--split-by": "split_by",
}
_FLAGS: Final = {
    "--dates": "True",
    "--header": "True",
    "--no-header": "False",
    "--no-path": "False",
    "--path": "True",
    "--in-place": "True",
    "--replace": "True",
    "--retype": "True",
}
_PLACEHOLDERS: Final = ("COLUMN", "FILE", "KIND", "N", "NAME")
_PAIRS: Final = ("--feature", "--rename-column", "--rename-config", "--rename-split", "--split")
# A value is a quoted text as shlex.quote writes it, a placeholder such as COLUMN, or a word with a digit or a sign.
_OPTION: Final = re.compile(
    r"(?<![\w-])(?P<option>--[a-z]+(?:-[a-z]+)*)(?: (?P<value>(?:'[^']*'|\"[^\"]*\"|[^\s'\":;,.?]|[,.](?=\S))+))?"
)


def as_arguments(text: str) -> str:
    """``text`` with options as arguments of ``Catalog.add``; a whole command line is left as it is.

    >>> as_arguments("To store it as text: --feature 'unit price=Text'. To leave out rows: --skip-bad 3")
    "To store it as text: features={'unit price': 'Text'}. To leave out rows: skip_bad=3"
    >>> as_arguments("Choose a column without repeated values: --key COLUMN, or leave out --split-by.")
    'Choose a column without repeated values: key=COLUMN, or leave out split_by.'
    """
    return text if "registry " in text else _OPTION.sub(_argument, text)


def _argument(match: re.Match[str]) -> str:
    option, value = match["option"], match["value"]
    name = _ARGUMENTS.get(option)
    if name is None:
        return match[0]
    if option in _FLAGS:
        return f"{name}={_FLAGS[option]}" + ("" if value is None else f" {value}")
    if value is None:
        return name
    try:
        plain = "".join(shlex.split(value))
    except ValueError:  # a text in quotes that is not closed
        return match[0]
    if option in _PAIRS:
        key, _, item = plain.partition("=")
        return f"{name}={{{key!r}: {item!r}}}"
    if option == "--null":
        return f"{name}=[{plain!r}]"
    return f"{name}={plain if plain.isdigit() or plain in _PLACEHOLDERS else repr(plain)}"


@contextmanager
def hints_as_arguments() -> Iterator[None]:
    """Errors that are raised inside say what to do in Python."""
    try:
        yield
    except RegistryError as error:
        if isinstance(error, UsageError):  # other messages quote data, which must stay as it is
            error.rephrase(text=as_arguments(error.message))
        if error.hint is not None:
            error.rephrase(hint=as_arguments(error.hint))
        raise
