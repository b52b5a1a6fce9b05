"""The command line: parses arguments, calls the API and presents the result. It makes no decisions of its own.

Each file has the verbs of one noun or subject. To add a verb, write a function with ``session_command`` and add a line
to the table in ``main``; a verb of a noun passes its ``group`` instead. ``commands`` defines commands and their common
options, ``options`` the options that several commands share, and ``output`` prints results.

Commands of other packages import the names below. Names are loaded on first use, because help imports no command.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.cli.commands import Session, session_command, version_values
    from registry.cli.lazy_group import LazyGroup
    from registry.cli.options import promote_option, reference_argument
    from registry.cli.output import Block, Column, Fields, Note, Table, size
    from registry.cli.progress import progress_bar, show_progress
    from registry.cli.publish import describe_publication, promotion_values
    from registry.envelope import fields_of

__all__ = [
    "Block",
    "Column",
    "Fields",
    "LazyGroup",
    "Note",
    "Session",
    "Table",
    "describe_publication",
    "fields_of",
    "progress_bar",
    "promote_option",
    "promotion_values",
    "reference_argument",
    "session_command",
    "show_progress",
    "size",
    "version_values",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        ".envelope": "fields_of",
        "commands": "Session session_command version_values",
        "lazy_group": "LazyGroup",
        "options": "promote_option reference_argument",
        "output": "Block Column Fields Note Table size",
        "progress": "progress_bar show_progress",
        "publish": "describe_publication promotion_values",
    },
)
