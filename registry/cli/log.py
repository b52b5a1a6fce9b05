"""``registry log`` and ``log verify``: print the event log, and check that nothing was changed outside of it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from registry.catalog.event_words import summarize
from registry.cli.commands import Session, session_command
from registry.cli.completion import complete_reference
from registry.cli.options import confirm, dry_run_option
from registry.cli.output import Block, Column, JsonText, Table
from registry.cli.progress import show_progress
from registry.envelope import fields_of, to_plain
from registry.errors import UsageError, suggest
from registry.model import ACTIONS, Event, describe_moment, parse_moment
from registry.splits import counted

if TYPE_CHECKING:
    from registry.api import Catalog
    from registry.catalog import ClockCorrection

_MOST: Final = 100_000
_SHOWN: Final = 20


def _complete_action(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the actions that events have."""
    return [CompletionItem(action) for action in ACTIONS if action.startswith(incomplete)]


class _Log(click.Group):
    """Commands about the log. The name of a dataset in their place is a common mistake."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            raise UsageError(
                f"registry log has no command {args[0]!r:.100}",
                hint=f"To show the events of a dataset: registry log --dataset {shlex.quote(args[0])}",
                details={"command": args[0][:100]},
            )
        return super().resolve_command(ctx, args)


@session_command("log", cls=_Log, invoke_without_command=True)
@click.option("--since", metavar="DATE", help="From this day or moment on, e.g. 2026-11-21 or 2026-11-21T10:00 (UTC).")
@click.option("--until", metavar="DATE", help="Up to this day or moment; a day includes its end.")
@click.option(
    "--dataset",
    metavar="NAME",
    shell_complete=complete_reference,
    help="Only this dataset; without a config, all its configs.",
)
@click.option(
    "--action",
    "actions",
    metavar="ACTION",
    multiple=True,
    shell_complete=_complete_action,
    help="Only this action, e.g. publish; may be repeated.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, _MOST),
    default=50,
    show_default=True,
    help="Show the newest N.",
    metavar="N",
)
@click.option("--follow", is_flag=True, help="Then show new events as they happen, one per line, until Ctrl-C.")
@click.option("--after", type=click.IntRange(0), metavar="ID", help="With --follow: continue after this event.")
@click.pass_context
def log(
    ctx: click.Context,
    session: Session,
    since: str | None,
    until: str | None,
    dataset: str | None,
    actions: tuple[str, ...],
    limit: int,
    follow: bool,
    after: int | None,
) -> None:
    """Show the event log, newest events last.

    With --follow, each event is one line, also with --format json. It continues after the catalog was unreachable for a
    while. A program that stores the last ID and passes it to --after misses no event.

    Examples:
        registry log
        registry log --dataset mnist --since 2026-11-01 --until 2026-11-21
        registry log --action yank --action drop --limit 1000 --format json
        registry log --follow
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx, ctx.invoked_subcommand)
        return
    for action in actions:
        _check_action(action)
    if follow:
        if since or until:
            raise UsageError("--follow shows only new events", hint="Leave out --since and --until.")
        with session.connect(dataset) as catalog:
            _follow(session, catalog, dataset, actions or None, limit, after)
        return
    if after is not None:
        raise UsageError("--after continues an earlier --follow", hint="Add --follow.")
    from registry.catalog import first_step

    first = None if since is None else parse_moment(since, end=False)
    last = None if until is None else parse_moment(until, end=True)
    with session.connect(dataset) as catalog:
        events = list(catalog.log(since=first, until=last, dataset=dataset, actions=actions or None, limit=limit))
    columns: dict[str, Column] = {
        "ID": lambda event: str(event.id),
        "AT (UTC)": lambda event: _second(event.at),
        "WHO": lambda event: event.described_actor,
        "ACTION": lambda event: event.action,
        "DATASET": lambda event: f"{event.dataset}:{event.version}" if event.version else event.dataset,
        "DETAILS": summarize,
    }
    is_whole = not (since or until or dataset or actions)
    empty = f"The log is empty. {first_step(catalog.url)}" if is_whole else "No events match these options."
    session.out.present("log", [_values_of(event) for event in events], lambda _: [Table(events, columns, empty=empty)])


def _follow(
    session: Session,
    catalog: Catalog,
    dataset: str | None,
    actions: tuple[str, ...] | None,
    limit: int,
    after: int | None,
) -> None:
    """Print events as they happen."""
    recent: Iterable[Event] = ()
    if after is None:
        newest = next(catalog.log(limit=1), None)  # read first, so that no event is missed in between
        after = 0 if newest is None else newest.id
        recent = catalog.log(dataset=dataset, actions=actions, before=after + 1, limit=limit)
    events = chain(recent, catalog.follow(after=after, dataset=dataset, actions=actions))

    def line(event: Event) -> Block:
        if session.out.as_json:
            return JsonText.line(to_plain(_values_of(event)))
        subject = f"{event.dataset}:{event.version}" if event.version else event.dataset
        words = (str(event.id), _second(event.at), event.described_actor, event.action, subject, summarize(event))
        return "  ".join(filter(None, words))

    with suppress(KeyboardInterrupt):  # the usual way to stop
        session.out.stream(map(line, events))


assert isinstance(log, click.Group)  # noqa: S101 (for mypy: it was created as a group above)


@session_command("verify", group=log)
@click.option(
    "--anchor", metavar="HASH", help="The head that an earlier run printed: fail unless the log still contains it."
)
def verify(session: Session, anchor: str | None) -> None:
    """Check that only the registry changed the catalog.

    Checks the hash of every event, replays the log, and compares it with every row: versions, states, aliases, default
    configs, protections, experiments, times, search documents, triggers, and the content digest of each version,
    computed again from its rows, which include the sha256 of each shard. Reservations are not compared, because they
    have no events. No file is opened: 'registry verify --all' compares the files. If an event or a row is wrong, the
    first one is named, and the exit code is 5. Store the printed head elsewhere: with --anchor, even a log that was
    rewritten completely is detected.

    Examples:
        registry log verify
        registry log verify --format json
        registry log verify --anchor $HEAD  # the head that an earlier run printed
    """
    with session.connect() as catalog, show_progress(session.out) as progress:
        report = catalog.verify_log(anchor=anchor, progress=progress)
    value = {
        **fields_of(report, "is_sound", "num_events", "num_versions", "num_shards", "head", "num_faults"),
        "faults": [fields_of(fault, "where", "problem") for fault in report.faults],
    }

    def human(it: dict[str, Any]) -> Iterator[str]:
        yield from map(str, report.faults[:_SHOWN])
        if it["num_faults"] > _SHOWN:
            yield f"and {it['num_faults'] - _SHOWN:,} more"
        if it["is_sound"]:
            counts = [counted(it[f"num_{noun}s"], noun) for noun in ("event", "version", "shard")]
            yield f"the log contains: {', '.join(counts)}"
            yield f"head: {it['head']}"
            yield "Reservations have no events, so they cannot be verified."
            yield "No file was opened: registry verify --all compares the files with these rows."

    session.out.present("log.verify", value, human)
    report.require_sound()


@session_command("correct-clock", group=log)
@click.option(
    "--first", type=click.IntRange(1), metavar="ID", help="The first wrong event. [default: first in the future]"
)
@click.option("--last", type=click.IntRange(1), metavar="ID", help="The last wrong event. [default: the newest]")
@click.option("--ahead", metavar="DURATION", help="How far the wrong clock was ahead, e.g. 3652d, if you know it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@dry_run_option
def correct_clock(
    session: Session, first: int | None, last: int | None, ahead: str | None, yes: bool, dry_run: bool
) -> None:
    """Correct the times of events that a wrong clock dated.

    The events themselves do not change: a correct-clock event lists their corrected times, which --at, --since,
    --until, histories and this log use from now on. The corrected time of an event is the time in the row that it
    describes, if that is earlier than the event's own time; else the event's time minus --ahead, if given; else the
    time of the next event, which is when it happened at the latest. First compare the clock of the machine, or of the
    database server, with another clock.

    Examples:
        registry log correct-clock --dry-run
        registry log correct-clock --yes
        registry log correct-clock --first 17 --last 20 --ahead 3652d --yes
    """
    with session.connect() as catalog:
        planned = catalog.correct_clock(first=first, last=last, ahead=ahead, dry_run=True)
        if planned.events and not dry_run:
            if not yes:
                session.out.tell(_planned_times(planned))
                if not confirm(f"{counted(len(planned.events), 'event')} would be read at other times"):
                    session.out.note("Nothing was changed.")
                    return
            planned = catalog.correct_clock(first=first, last=last, ahead=ahead)
    value = {
        **fields_of(planned, "clock", "is_dry_run"),
        "events": [
            fields_of(event, "id", "action", "dataset", "version", "stamped_at", "at") for event in planned.events
        ],
    }

    def human(_: dict[str, Any]) -> Iterator[Block]:
        if not planned.events:
            yield f"nothing to correct: the clock shows {describe_moment(planned.clock.replace(microsecond=0))}"
        elif yes or dry_run:
            yield from _planned_times(planned)
        if planned.events:
            did = "would be corrected" if planned.is_dry_run else "corrected"
            yield f"{did}: {counted(len(planned.events), 'event')}"

    session.out.present("log.correct-clock", value, human)


def _planned_times(planned: ClockCorrection) -> list[Block]:
    columns: dict[str, Column] = {
        "ID": lambda event: str(event.id),
        "ACTION": lambda event: event.action,
        "DATASET": lambda event: f"{event.dataset}:{event.version}" if event.version else event.dataset,
        "STAMPED (UTC)": lambda event: _second(event.stamped_at),
        "READ AT (UTC)": lambda event: _second(event.at),
    }
    return [Table(list(planned.events), columns)]


def _second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _values_of(event: Event) -> dict[str, Any]:
    return {
        **fields_of(event, "id", "at", "actor", "recorded_by", "session_user", "is_verified"),
        **fields_of(event, "action", "dataset", "version", "details", "hash"),
        "summary": summarize(event),
        **({} if event.stamped_at is None else {"stamped_at": event.stamped_at}),
    }


def _check_action(action: str) -> None:
    if action not in ACTIONS:
        raise UsageError(
            f"no action {action[:60]!r}",
            hint=suggest(action, ACTIONS, most=len(ACTIONS)),
            details={"name": action[:60], "known": list(ACTIONS)},
        )


def _refuse_options(ctx: click.Context, subcommand: str) -> None:
    """Refuse options before the subcommand, because they would be ignored."""
    for parameter in ctx.command.params:
        if parameter.name and ctx.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT:
            raise UsageError(
                f"{parameter.opts[-1]} is only an option of 'registry log'",
                hint=f"Put options of '{subcommand}' after the subcommand: see registry log {subcommand} --help.",
            )
