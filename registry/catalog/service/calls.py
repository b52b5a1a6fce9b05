"""The calls of the catalog protocol as a service offers them: their arguments, who may make them, and about what.

``POLICY`` is the table of rights. It has each call of the protocol; a new call without a line is an error at import.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from registry.catalog import backend
from registry.catalog.backend import CatalogBackend
from registry.catalog.service.messages import Reading, codec, hints_of, load_json, load_value
from registry.errors import UsageError

_UNSENT: Final = frozenset({"advance"})
_STREAMS: Final = frozenset({"backup", "snapshot"})

READER, PUBLISHER, MAINTAINER, ADMIN, NOBODY = "reader", "publisher", "maintainer", "admin", "nobody"
DEFAULT_CONFIG, SOME_CONFIG, EVERY_CONFIG = "default", "some", "every"


@dataclass(frozen=True, slots=True)
class Policy:
    """Who may make a call.

    Attributes:
        role: the least role; ``nobody`` if only the server itself makes the call.
        is_write: whether it changes the catalog, so that it takes an idempotency key.
        subject: the argument that says which dataset the call is about; None if it is about the catalog. Then a token
            that does not cover every dataset gets the result without other datasets (``filters``), or is refused.
        filters: whether the result is a sequence of values of datasets.
        configs: which configs of a dataset a call that names none is about: the default one, every one, or some, which
            are those of the result.
    """

    role: str
    is_write: bool = False
    subject: str | None = None
    filters: bool = False
    configs: str = DEFAULT_CONFIG


def _read(subject: str | None = None, *, filters: bool = False, configs: str = DEFAULT_CONFIG) -> Policy:
    return Policy(READER, subject=subject, filters=filters, configs=configs)


def _write(subject: str | None, role: str = PUBLISHER, *, configs: str = DEFAULT_CONFIG) -> Policy:
    return Policy(role, is_write=True, subject=subject, configs=configs)


POLICY: Final[Mapping[str, Policy]] = {
    "access.create_token": _write(None, ADMIN),
    "access.tokens": Policy(ADMIN),
    "access.revoke_token": _write(None, ADMIN),
    "access.refusals": Policy(ADMIN),
    "access.authenticate": Policy(NOBODY),
    "access.note_refusal": Policy(NOBODY),
    "webhooks.create": _write(None, ADMIN),
    "webhooks.list": Policy(ADMIN),
    "webhooks.secret": Policy(ADMIN),
    "webhooks.remove": _write(None, ADMIN),
    "webhooks.resume": _write(None, ADMIN),
    "now": _read(),
    "find": _read("reference"),
    "find_at": _read("reference"),
    "published": _read("name"),
    "published_at": _read(filters=True),
    "published_digest": _read("name"),
    "neighbours": _read("name"),
    "standing": _read("name"),
    "versions": _read("name", filters=True),
    "sizes": _read(filters=True),
    "datasets": _read(filters=True),
    "search": _read(filters=True),
    "explain_no_hits": Policy(READER),
    "fingerprints": _read("version"),
    "attachments": _read("version"),
    "producers": _read("name", filters=True),
    "require_publisher": Policy(PUBLISHER),
    "publish": _write("version"),
    "add_fingerprints": _write("version"),
    "attach": _write("version"),
    "add_producer": _write("exactly"),
    "rename": _write("name", ADMIN, configs=EVERY_CONFIG),
    "backup": Policy(ADMIN),
    "snapshot": Policy(ADMIN),
    "aliases.list": _read("dataset", filters=True, configs=SOME_CONFIG),
    "aliases.history": _read("reference"),
    "aliases.set": _write("reference"),
    "aliases.remove": _write("reference"),
    "configs.list": _read("name", filters=True, configs=SOME_CONFIG),
    "configs.protection": _read("name"),
    "configs.set_default": _write("name", configs=EVERY_CONFIG),
    "configs.set_protection": _write("dataset", ADMIN, configs=EVERY_CONFIG),
    "experiments.list": _read(),
    "experiments.defaults_for": _read(),
    "experiments.of_version": _read("version"),
    "experiments.add": _write(None),
    "experiments.set_default": _write(None, ADMIN),
    "experiments.retire": _write(None, ADMIN),
    "lifecycle.promote": _write("reference"),
    "lifecycle.approve": _write("proposal", MAINTAINER, configs=EVERY_CONFIG),
    "lifecycle.reject": _write("proposal", MAINTAINER, configs=EVERY_CONFIG),
    "lifecycle.proposals": _read("dataset", filters=True),
    "lifecycle.deprecate": _write("reference"),
    "lifecycle.yank": _write("reference"),
    "lifecycle.drop": _write("reference", ADMIN),
    "lifecycle.undo": _write("reference", ADMIN),
    "lifecycle.describe": _write("reference"),
    "lifecycle.remove": _write("reference", ADMIN),
    "lifecycle.removals": _read("dataset", filters=True),
    "locations.add": _write("exactly"),
    "locations.remove": _write("exactly", ADMIN),
    "locations.relocate": _write("exactly", ADMIN),
    "locations.outside": _read(filters=True),
    "locations.data_dir": _read(),
    "locations.set_data_dir": _write(None, ADMIN),
    "events": _read("dataset", configs=SOME_CONFIG),
    "log.page": _read("event_filter", filters=True, configs=SOME_CONFIG),
    "log.verify": Policy(ADMIN),
    "log.num_rows": Policy(ADMIN),
    "log.correct_clock": _write(None, ADMIN),
    "reservations.reserve": _write("exactly"),
    "reservations.note_found": _write("reservation"),
    "reservations.take_over": _write("reservation"),
    "reservations.begin_cleaning": _write("reservation"),
    "reservations.end_cleaning": _write("reservation"),
    "reservations.require": Policy(PUBLISHER, subject="reservation"),
    "reservations.leave": _write("reservation"),
    "reservations.list": _read("dataset", filters=True),
    "reservations.release": _write("dataset"),
    "shards.between": _read("version"),
    "shards.find": _read("name"),
    "shards.files_of": _read("references"),
    "shards.lengths_between": _read("split_id"),
    "shards.lengths_at": _read("split_id"),
    "shards.empty_between": _read("split_id"),
    "shards.version_of": _read("split_id"),
}

_ACTIONS: Final = {
    "access.create_token": "create access tokens",
    "access.tokens": "list access tokens",
    "access.revoke_token": "revoke access tokens",
    "access.refusals": "list refused calls",
    "aliases.set": "set an alias",
    "aliases.remove": "remove an alias",
    "backup": "back up the catalog",
    "configs.set_default": "choose the default config",
    "configs.set_protection": "protect a dataset, or stop protecting it",
    "lifecycle.approve": "approve this proposal",
    "lifecycle.reject": "reject this proposal",
    "lifecycle.undo": "undo a change of a version",
    "locations.relocate": "record that files were moved",
    "log.correct_clock": "correct the times of events",
    "log.num_rows": "verify the event log",
    "log.verify": "verify the event log",
    "publish": "publish",
    "require_publisher": "publish",
    "snapshot": "write a site of the catalog",
    "webhooks.create": "create webhooks",
    "webhooks.list": "list webhooks",
    "webhooks.remove": "remove webhooks",
    "webhooks.resume": "resume webhooks",
    "webhooks.secret": "see the secrets of webhooks",
}
"""What a call does, for people, where its description does not begin so."""


@dataclass(frozen=True)
class Call:
    """A call of the protocol.

    Attributes:
        name: e.g. ``find`` or ``aliases.set``.
        policy: who may make it.
        function: its declaration.
    """

    name: str
    policy: Policy
    function: Any

    @cached_property
    def signature(self) -> inspect.Signature:
        """Its parameters, without ``self``; those of ``Unpack`` are keywords, and callbacks are left out."""
        hints, result = hints_of(self.function), []
        for parameter in [*inspect.signature(self.function).parameters.values()][1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                options = typing.get_args(hints[parameter.name])[0]
                result += [
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        annotation=kind,
                        default=inspect.Parameter.empty if name in options.__required_keys__ else None,
                    )
                    for name, kind in hints_of(options).items()
                ]
            elif parameter.name not in _UNSENT:
                result.append(parameter.replace(annotation=hints[parameter.name]))
        return inspect.Signature(result)

    @property
    def action(self) -> str:
        """What it does, for people: the words after "may not" in a refusal."""
        text = re.split(r"[.;:] |\.$", inspect.getdoc(self.function) or f"Call {self.name}")[0].partition("\n")[0]
        return _ACTIONS.get(self.name) or text[:1].lower() + text[1:].replace("`", "").rstrip(".")

    @cached_property
    def returns(self) -> Any:
        """The type of its result; None if it is a stream of bytes."""
        return None if self.name in _STREAMS else hints_of(self.function)["return"]

    @cached_property
    def sent(self) -> dict[str, inspect.Parameter]:
        """The parameters that a client sends: the server sets the actor."""
        return {name: part for name, part in self.signature.parameters.items() if name != "actor"}

    @property
    def is_get(self) -> bool:
        """Whether it may be sent as a GET: it changes nothing, and its result is JSON that a cache may keep."""
        return not self.policy.is_write and self.returns is not None and self.name != "webhooks.secret"

    @cached_property
    def needed(self) -> frozenset[str]:
        """The parameters that a query must have: those without a default that may not be null."""
        required = (part for part in self.sent.values() if part.default is part.empty)
        return frozenset(part.name for part in required if type(None) not in typing.get_args(part.annotation))

    @property
    def takes_actor(self) -> bool:
        """Whether the server says who makes the call."""
        return "actor" in self.signature.parameters

    def dump(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The arguments of a call as JSON, by name; those with their default are left out."""
        kwargs = {name: value for name, value in kwargs.items() if name not in _UNSENT}
        given = self.signature.bind(*args, **kwargs).arguments
        result = {}
        for name, parameter in self.sent.items():
            if name in given and (parameter.default is parameter.empty or given[name] != parameter.default):
                result[name] = codec(kind_of(parameter)).dump(given[name])
        return result

    def of_query(self, query: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """The arguments in the query of a URL as JSON: text as it is, other values as JSON; what is null is left out.

        Raises:
            UsageError: a value is not JSON, or an argument occurs twice.
        """
        result: dict[str, Any] = {}
        for name, text in query:
            if name in result:
                raise UsageError(f"the query has {name!r:.80} twice", details={"argument": name})
            is_text = name not in self.sent or codec(kind_of(self.sent[name])).is_text
            result[name] = text if is_text else load_json(text.encode(errors="surrogatepass"), name)
        required = {part.name for part in self.sent.values() if part.default is part.empty}
        return dict.fromkeys(required - self.needed) | result

    def load(self, values: Mapping[str, Any], reading: Reading) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that JSON describes, to make the call with; without the actor.

        Raises:
            UsageError: an argument is missing, unknown or of the wrong type; or another error of a value's constructor.
        """
        for name in values:
            if name not in self.sent:
                raise UsageError(
                    f"{self.name} takes no argument {name!r:.80}",
                    hint=f"It takes: {', '.join(self.sent) or 'none'}.",
                    details={"argument": name},
                )
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self.sent.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += load_value(kind_of(parameter), values.get(name, []), reading, name)
            elif name not in values and parameter.default is parameter.empty:
                raise UsageError(f"{self.name} needs the argument {name!r}", details={"argument": name})
            elif parameter.kind is not parameter.KEYWORD_ONLY:  # implementations may give them other names
                is_given = name in values
                kind = parameter.annotation
                args.append(load_value(kind, values[name], reading, name) if is_given else parameter.default)
            elif name in values:
                kwargs[name] = load_value(parameter.annotation, values[name], reading, name)
        return tuple(args), kwargs


def kind_of(parameter: inspect.Parameter) -> Any:
    """The type of the value that is sent for a parameter."""
    is_many = parameter.kind is parameter.VAR_POSITIONAL
    return types.GenericAlias(tuple, (parameter.annotation, ...)) if is_many else parameter.annotation


def _calls() -> Iterator[tuple[str, Any]]:
    for name, member in vars(CatalogBackend).items():
        if isinstance(member, property) and name not in ("url", "file"):
            group = getattr(backend, member.fget.__annotations__["return"])  # resolving it would load every value
            yield from ((f"{name}.{part}", call) for part, call in vars(group).items() if not part.startswith("_"))
        elif inspect.isfunction(member) and not name.startswith("_") and name != "close":
            yield name, member


CALLS: Final[Mapping[str, Call]] = {name: Call(name, POLICY[name], function) for name, function in _calls()}
"""Every call of the protocol, by its name."""
