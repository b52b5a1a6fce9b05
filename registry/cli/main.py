"""Where the command line starts: the list of commands, loaded when used, and the one place that catches errors."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import Final

import click

import registry
from registry.cli.lazy_group import LazyGroup, find_plugin
from registry.errors import RegistryError, UsageError

COMMANDS: Final = {
    "quickstart": "Build, publish, slice and read a first dataset.",
    "build": "Run a builder: write shards, verify, publish.",
    "publish": "Publish a folder of prepared shards.",
    "import": "Catalog what others prepared: TFDS, Parquet, Earth Engine.",
    "export": "Write a version for others: TFDS, Croissant, Earth Engine.",
    "earth-engine": "Rasters and tables to Earth Engine's TFRecords, and back.",
    "list": "List the datasets of the catalog.",
    "search": "Find datasets by words: names, tags, features, descriptions.",
    "show": "Show one dataset version: splits, features, licence.",
    "versions": "List the versions of a dataset.",
    "diff": "Show what differs between two versions, down to the record.",
    "resolve": "Show which records of which files a split expression names.",
    "split": "Prove how split expressions stand to each other.",
    "read": "Print examples as JSON lines.",
    "verify": "Check every stored shard against the catalog.",
    "promote": "Make a version the canonical one.",
    "deprecate": "Tell the readers of a version to move on.",
    "yank": "Withdraw a version from all who do not name it.",
    "drop": "Take a version away from every reader.",
    "config": "List configs, and choose the default one.",
    "experiment": "Look after experiments: flags that versions switch on or off.",
    "alias": "Give versions names that may be moved: mnist@paper.",
    "pin": "Pin slices for a paper; verify, restore, cite and sign pins.",
    "reservation": "Look after places in object stores that a publisher holds.",
    "log": "Show who did what and when, or verify the log.",
    "db": "Look after the catalog's database.",
    "completion": "Print the shell's completion script.",
}
"""Name and help line of each command; its module is ``registry.cli.<name>``. Help costs no import of theirs."""


_PLUGINS: Final = ("earth-engine",)
_PYTHON_WORDS: Final = ("import", "list")
_is_interrupted = False
_RUN_AGAIN: Final = "Nothing half done is visible. Run the same command again to finish."


class _Commands(LazyGroup):
    """The commands of the program."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. A reader of stdout who leaves early, as `head` does, is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from registry.cli.output import give_up_stdout

            give_up_stdout()
            raise click.exceptions.Exit(0) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command where there is none of that name."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            nearest = difflib.get_close_matches(name, COMMANDS, n=1)
            raise UsageError(
                f"no command {name!r}",
                hint=f"Did you mean 'registry {nearest[0]}'?" if nearest else "See registry --help.",
            )
        return super().resolve_command(ctx, args)


def _find(name: str) -> tuple[str, str]:
    """The module of a command; words of Python have a ``_`` behind them."""
    if name in _PLUGINS:
        return find_plugin(name)
    return f"registry.cli.{name}_" if name in _PYTHON_WORDS else f"registry.cli.{name}", "command"


@click.group(
    cls=_Commands,
    commands_help=COMMANDS,
    find=_find,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: registry quickstart. Every command has --help with examples.",
)
@click.version_option(registry.__version__, prog_name="registry")
def cli() -> None:
    """Publish dataset versions once; find, slice, read and pin them."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started us: what is printed goes nowhere
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):  # a locale without UTF-8: a letter that it lacks is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored, as after nohup
        signal.signal(signal.SIGINT, _interrupt)
    sys.exit(run(sys.argv[1:]))


def _interrupt(_signal: int, _frame: object) -> None:
    """Answer Ctrl-C: end what waits for another machine, in every thread, then the command."""
    global _is_interrupted  # noqa: PLW0603 (there is one command in a process)
    _is_interrupted = True
    network = sys.modules.get("registry.storage.network")  # nothing waits where it is not loaded
    if network is not None:
        network.interrupt()
    raise KeyboardInterrupt


def run(arguments: list[str]) -> int:
    """Run one command; the exit code. Every error ends here, as one message with a hint and no traceback."""
    try:
        result = cli.main(arguments, prog_name="registry", standalone_mode=False)
        sys.stdout.flush()
    except RegistryError as error:
        if _is_interrupted:  # a request that was cut off, in another thread or while something was tidied up
            return _fail(arguments, "interrupted", "interrupted", _RUN_AGAIN, {}, 130)
        if os.environ.get("REGISTRY_DEBUG"):
            from registry.cli.output import print_traceback

            print_traceback(error)
        return _fail(arguments, error.code, error.message, error.hint, error.details, error.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # a group without a command: its help page, and no error in front of it
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "registry"
        hint = f"See {path} --help."
        if isinstance(error, click.NoSuchOption):
            hint += " Put arguments that begin with '-' after '--'."
        return _fail(arguments, "usage", error.format_message(), hint, {}, 2)
    except click.ClickException as error:
        return _fail(arguments, "failure", error.format_message(), None, {}, 1)
    except (KeyboardInterrupt, click.Abort):
        return _fail(arguments, "interrupted", "interrupted", _RUN_AGAIN, {}, 130)
    except BrokenPipeError:
        from registry.cli.output import give_up_stdout

        give_up_stdout()
        return 0
    except Exception as error:  # noqa: BLE001 - the one place: nobody sees a traceback who did not ask
        if os.environ.get("REGISTRY_DEBUG"):
            from registry.cli.output import print_traceback

            print_traceback(error)
            return 1
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return _fail(arguments, "failure", "no space is left where the output goes", None, {}, 1)
        kind = type(error).__name__
        hint = "This is a fault of the registry. Set REGISTRY_DEBUG=1 to see where, and report it."
        return _fail(arguments, "internal", f"{kind}: {error}", hint, {}, 1)
    return result if isinstance(result, int) else 0


def _fail(
    arguments: list[str], code: str, message: str, hint: str | None, details: dict[str, object], exit_code: int
) -> int:
    from registry.cli.output import give_up_stdout, print_error

    try:
        sys.stdout.flush()  # where both lead to one place, the error is the last word
    except OSError:
        give_up_stdout()
    text = " ".join(arguments)
    print_error(code, message, hint, details, as_json="--format json" in text or "--format=json" in text)
    return exit_code
