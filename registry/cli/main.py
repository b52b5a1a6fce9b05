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
from registry.cli.commands import LazyGroup
from registry.errors import RegistryError, UsageError

COMMANDS: Final = {
    "quickstart": ("registry.cli.quickstart:quickstart", "Build, publish, slice and read a first dataset."),
    "build": ("registry.cli.publish:build", "Run a builder: write shards, verify, publish."),
    "publish": ("registry.cli.publish:publish", "Publish a folder of prepared shards."),
    "import": ("registry.cli.import_:import_", "Catalog what others prepared: TFDS, Parquet, Earth Engine."),
    "export": ("registry.cli.export:export", "Write a version for others: TFDS, Croissant, Earth Engine."),
    "earth-engine": ("plugin:earth-engine", "Rasters and tables to Earth Engine's TFRecords, and back."),
    "list": ("registry.cli.browse:list_", "List the datasets of the catalog."),
    "search": ("registry.cli.browse:search", "Find datasets by words: names, tags, features, descriptions."),
    "show": ("registry.cli.browse:show", "Show one dataset version: splits, features, licence."),
    "versions": ("registry.cli.browse:versions", "List the versions of a dataset."),
    "diff": ("registry.cli.diff:diff", "Show what differs between two versions, down to the record."),
    "resolve": ("registry.cli.resolve:resolve", "Show which records of which files a split expression names."),
    "split": ("registry.cli.resolve:split", "Prove how split expressions stand to each other."),
    "read": ("registry.cli.read:read", "Print examples as JSON lines."),
    "verify": ("registry.cli.verify:verify", "Check every stored shard against the catalog."),
    "promote": ("registry.cli.lifecycle:promote", "Make a version the canonical one."),
    "deprecate": ("registry.cli.lifecycle:deprecate", "Tell the readers of a version to move on."),
    "yank": ("registry.cli.lifecycle:yank", "Withdraw a version from all who do not name it."),
    "drop": ("registry.cli.lifecycle:drop", "Take a version away from every reader."),
    "config": ("registry.cli.config:config", "List configs, and choose the default one."),
    "experiment": (
        "registry.cli.experiment:experiment",
        "Look after experiments: flags that versions switch on or off.",
    ),
    "alias": ("registry.cli.alias:alias", "Give versions names that may be moved: mnist@paper."),
    "pin": ("registry.cli.pin:pin", "Pin slices for a paper; verify, restore, cite and sign pins."),
    "reservation": (
        "registry.cli.reservation:reservation",
        "Look after places in object stores that a publisher holds.",
    ),
    "log": ("registry.cli.log:log", "Show who did what and when, or verify the log."),
    "db": ("registry.cli.db:db", "Look after the catalog's database."),
    "completion": ("registry.cli.completion:completion", "Print the shell's completion script."),
}
"""Each command: where it is, and its help line. A command is imported when it is run, so help costs no import."""


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
