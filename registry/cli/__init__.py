"""The command line: parses arguments, calls the API and presents the result. It makes no decisions of its own.

Each file has the verbs of one noun or subject. To add a verb, write a function with ``session_command`` and add a line
to the table in ``main``; a verb of a noun passes its ``group`` instead. ``commands`` defines commands and their common
options, ``options`` the options that several commands share, and ``output`` prints results.

Commands of other packages import the names below. Names are loaded on first use, because help imports no command.
"""

from typing import TYPE_CHECKING

from registry.lazy import lazy_exports

if TYPE_CHECKING:
    from registry.cli.commands import Session as Session
    from registry.cli.commands import session_command as session_command
    from registry.cli.commands import version_values as version_values
    from registry.cli.lazy_group import LazyGroup as LazyGroup
    from registry.cli.options import promote_option as promote_option
    from registry.cli.options import reference_argument as reference_argument
    from registry.cli.output import Block as Block
    from registry.cli.output import Column as Column
    from registry.cli.output import Fields as Fields
    from registry.cli.output import Note as Note
    from registry.cli.output import Table as Table
    from registry.cli.output import size as size
    from registry.cli.progress import progress_bar as progress_bar
    from registry.cli.progress import show_progress as show_progress
    from registry.cli.publish import describe_publication as describe_publication
    from registry.cli.publish import promotion_values as promotion_values
    from registry.envelope import fields_of as fields_of


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
