"""The calls of the catalog protocol as a service offers them: their arguments and their results as JSON.

``policy.py`` says who may make them; a new call of the protocol without a line there is an error at import.
"""

from __future__ import annotations

import dataclasses
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
from registry.catalog.pages import Pages, page_limit, pages_of
from registry.catalog.policy import POLICY, Policy
from registry.catalog.service.messages import Reading, codec, hints_of, load_json, load_value
from registry.errors import UsageError

_UNSENT: Final = frozenset({"advance"})
_STREAMS: Final = frozenset({"backup", "snapshot"})

MOST_ITEMS: Final = 500
"""Items of a page."""

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
    def answers(self) -> Any:
        """The type of the JSON that is answered.

        If the result may be long, it is a page: some items, and the argument for the page that follows, or None.
        """
        if self.pages is None:
            return self.returns
        items, cursor = self.returns, self.signature.parameters[self.pages.argument].annotation
        name = "".join(part.capitalize() for part in self.name.split("."))
        page = dataclasses.make_dataclass(f"{name}Page", [("items", items), ("next", cursor)], frozen=True)
        page.__doc__ = f"A part of a long list; ``next`` is the ``{self.pages.argument}`` of the part that follows."
        return page

    @property
    def pages(self) -> Pages | None:
        """How its result is continued, if it is answered in pages. Then it takes a ``limit``, too."""
        return pages_of(self.function)

    @staticmethod
    def limited(kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call for its next page; raises UsageError, see ``page_limit``."""
        limit = page_limit(kwargs.get("limit"))
        return {**kwargs, "limit": MOST_ITEMS if limit is None else max(1, min(limit, MOST_ITEMS))}

    def page_of(self, pages: Pages, items: Sequence[Any], limit: int | None) -> Any:
        """The page with these items; ``limit`` is how many the client has asked for, None for all."""
        items = items if limit is None else items[:limit]
        is_last = len(items) < MOST_ITEMS or len(items) == limit
        return self.answers(items=tuple(items), next=None if is_last else pages.name(items[-1]))

    @staticmethod
    def after_page(pages: Pages, values: Mapping[str, Any], page: Any) -> dict[str, Any]:
        """The arguments as JSON for the page that follows one."""
        values = {**values, pages.argument: str(page.next)}
        return values if values.get("limit") is None else {**values, "limit": values["limit"] - len(page.items)}

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
