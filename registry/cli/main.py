"""The entry point: defines the table of commands, which are imported when they run, and catches all errors."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from typing import Final

import click

import registry
from registry.cli.lazy_group import LazyGroup
from registry.environment import read_variable
from registry.errors import RegistryError, StorageUnavailableError

COMMANDS: Final = {
    "quickstart": ("registry.cli.quickstart:quickstart", "Build, publish, slice and read a first dataset."),
    "add": ("registry.cli.add:add", "Publish any data: CSV, JSON, images, arrays, archives."),
    "build": ("registry.cli.publish:build", "Run a builder: write shards, verify, publish."),
    "publish": ("registry.cli.publish:publish", "Publish a folder of prepared shards."),
    "import": ("registry.cli.import_:import_", "Import prepared datasets: TFDS, Parquet, Earth Engine."),
    "export": ("registry.cli.export:export", "Write a version in another format: CSV, JSON, TFDS ..."),
    "earth-engine": ("plugin:earth-engine", "Convert rasters and tables to and from Earth Engine's files."),
    "browse": ("registry.cli.pages:browse", "See datasets, records and changes in a browser."),
    "site": ("registry.cli.pages:site", "Write the pages and the catalog as files for a web server."),
    "serve": ("registry.cli.serve:serve", "Serve the catalog over HTTP, to clients with tokens."),
    "list": ("registry.cli.browse:list_", "List the datasets of the catalog."),
    "search": ("registry.cli.browse:search", "Find datasets by words: names, tags, features, descriptions."),
    "show": ("registry.cli.browse:show", "Show one dataset version: splits, features, licence."),
    "head": ("registry.cli.head:head", "Show the first rows: class names, dates, pictures."),
    "stats": ("registry.cli.stats:stats", "Show statistics of the values: ranges, classes, lengths."),
    "versions": ("registry.cli.browse:versions", "List the versions of a dataset."),
    "diff": ("registry.cli.browse:diff", "Show what differs between two versions, down to the record."),
    "resolve": ("registry.cli.resolve:resolve", "Show the records and files that a split expression selects."),
    "split": ("registry.cli.resolve:split", "Check whether splits overlap, cover or equal each other."),
    "read": ("registry.cli.read:read", "Print examples as JSON lines."),
    "sql": ("registry.cli.sql:sql", "Query the records in SQL."),
    "verify": ("registry.cli.verify:verify", "Check every stored shard against the catalog."),
    "describe": ("registry.cli.lifecycle:describe", "Correct the licence, description or tags of a version."),
    "rename": ("registry.cli.lifecycle:rename", "Rename a dataset; its former name continues to work."),
    "promote": ("registry.cli.lifecycle:promote", "Make a version the canonical one."),
    "proposal": ("registry.cli.proposal:proposal", "Approve changes to protected names."),
    "deprecate": ("registry.cli.lifecycle:deprecate", "Advise readers to stop using a version."),
    "yank": ("registry.cli.lifecycle:yank", "Withdraw a version; only exact references still find it."),
    "drop": ("registry.cli.lifecycle:drop", "Hide a version from every look-up, but keep its files."),
    "remove": ("registry.cli.lifecycle:remove", "Remove the files of a dropped version after a grace period."),
    "config": ("registry.cli.config:config", "List configs, and choose the default one."),
    "experiment": ("registry.cli.experiment:experiment", "Manage experiments: flags that versions switch on or off."),
    "alias": ("registry.cli.alias:alias", "Give versions movable names: mnist@paper."),
    "cache": ("registry.cli.cache:cache", "Show, fill and clear the cache of files and columns."),
    "pin": ("registry.cli.pin:pin", "Pin slices for a paper; verify, restore, cite and sign pins."),
    "copy": ("registry.cli.copy:copy", "Copy versions to another catalog or store."),
    "mirror": ("registry.cli.mirror:mirror", "Manage the locations of the files of a version."),
    "relocate": ("registry.cli.mirror:relocate", "Record that the folder of a version was moved by hand."),
    "reservation": (
        "registry.cli.reservation:reservation",
        "Manage the places in object stores that publishers reserve.",
    ),
    "mcp": ("registry.cli.mcp:mcp", "Serve the catalog to an agent, as read-only tools."),
    "webhook": ("registry.cli.webhook:webhook", "Send the events of a shared catalog to URLs."),
    "token": ("registry.cli.token:token", "Manage access tokens for a shared catalog."),
    "log": ("registry.cli.log:log", "Show who did what and when, or verify the log."),
    "du": ("registry.cli.keeping:du", "Show the disk space of datasets; shared files count once."),
    "gc": ("registry.cli.keeping:gc", "Remove unfinished uploads and other leftovers."),
    "backup": ("registry.cli.backup:backup", "Save the catalog to a file, while it is in use."),
    "restore": ("registry.cli.backup:restore", "Fill an empty catalog from a backup."),
    "login": ("registry.cli.login:login", "Store your access token for a shared catalog."),
    "logout": ("registry.cli.login:logout", "Delete your access token for a shared catalog."),
    "doctor": ("registry.cli.doctor:doctor", "Check the catalog, your rights and the installation."),
    "db": ("registry.cli.db:db", "Manage the catalog database."),
    "completion": ("registry.cli.completion:completion", "Print the shell's completion script."),
}
"""Module and help line of each command. A command is imported when it is run, so that help is fast."""


_received = 0
"""The number of the signal that interrupted the command."""


class _Commands(LazyGroup):
    """The commands of the program."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. If the reader of stdout closes it early, as `head` does, the command succeeds.

        By default, Click would end the process with exit code 1 and no message for any broken pipe.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            from registry.cli.output import give_up_stdout, is_stdout_closed

            if not is_stdout_closed():
                raise StorageUnavailableError(
                    "a connection or a worker process was closed at the other end", hint="Try again."
                ) from error
            give_up_stdout()
            raise click.exceptions.Exit(0) from None


@click.group(
    cls=_Commands,
    table=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: registry quickstart. Every command has --help with examples.",
)
@click.version_option(registry.__version__, prog_name="registry")
def cli() -> None:
    """Publish dataset versions once; find, slice, read and pin them."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(200_000)  # imports make many objects and no garbage: looking for some takes 5% of a look-up
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the parent process closed it: output is discarded
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):  # a locale without UTF-8 must not make a command fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) in (
            signal.default_int_handler,
            signal.SIG_DFL,
        ):  # else it is ignored, as after nohup
            signal.signal(number, _interrupt)
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt as error:  # it arrived just before an error was printed
        code = _fail(sys.argv[1:], error)
    finally:
        gc.freeze()  # Python looks for garbage once more as it ends, which takes 5% of a look-up
    for number in (signal.SIGINT, signal.SIGTERM):  # the result is printed: another signal only ends the wait
        if signal.getsignal(number) in (_interrupt, _let_print):
            signal.signal(number, lambda _signal, _frame: os._exit(code))
    sys.exit(code)


def _interrupt(number: int, _frame: object) -> None:
    """Handle Ctrl-C and SIGTERM: cancel requests to other machines in all threads, then end the command."""
    global _received  # noqa: PLW0603 (there is one command in a process)
    _received = number
    if "sqlalchemy" in sys.modules:  # it logs the traceback of a second signal that arrives while a connection closes
        import logging

        logging.getLogger("sqlalchemy").setLevel(logging.CRITICAL + 1)
    network = sys.modules.get("registry.storage.network")  # if it is not loaded, no request is running
    if network is not None:
        network.interrupt()
    raise KeyboardInterrupt


def _let_print(number: int, _frame: object) -> None:
    """Handle a signal that arrives while an error is printed: the next one ends the process at once."""
    signal.signal(number, lambda number, _frame: os._exit(128 + number))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code. Every error is printed as a message with a hint, without a traceback."""
    try:
        result = cli.main(arguments, prog_name="registry", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # a group without a command: only its help page, without an error
        return 2
    except BrokenPipeError:  # of stdout, while it was flushed
        from registry.cli.output import give_up_stdout

        give_up_stdout()
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the one place that catches everything
        return _fail(arguments, error)
    return result if isinstance(result, int) else 0


def _fail(arguments: list[str], error: BaseException) -> int:
    """Print an error; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # people press Ctrl-C repeatedly
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, _let_print)
    from registry.cli.faults import argument_hider, describe_failure
    from registry.cli.output import give_up_stdout, print_error, print_traceback

    hide = argument_hider(arguments)
    failure = describe_failure(error, received=_received)
    if (
        read_variable("REGISTRY_DEBUG")
        and failure.code != "interrupted"
        and not isinstance(error, click.ClickException)
    ):
        print_traceback(error, hide)
        if not isinstance(error, RegistryError):
            return failure.exit_code
    try:
        sys.stdout.flush()  # so that the error comes last if stdout and stderr are the same file
    except OSError:
        give_up_stdout()
    text = " ".join(arguments)
    as_json = "--format json" in text or "--format=json" in text
    print_error(failure.code, hide(failure.message), hide(failure.hint), hide(failure.details), as_json=as_json)
    return failure.exit_code
