"""The setting ``issuers`` of ``registry serve``: the accepted issuers of ID tokens, and the rights of their claims.

    claims of an ID token -> the first binding of its issuer whose claims are equal -> actor, role, datasets

A binding that every account at a public issuer satisfies is refused when the service starts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Final

from registry.catalog.service.sign_in import is_secure_url
from registry.errors import UsageError
from registry.masking import is_secret_name, mask
from registry.model import AccessToken, Role
from registry.pins.yaml_text import join_key

Place = Callable[[str], str]
"""Says where the value of a key path was read, e.g. ``service.yaml, line 3: issuers[0].url``."""

_CI_MINUTES: Final = 15
_PERSON_MINUTES: Final = 12 * 60
_MOST_MINUTES: Final = 24 * 60
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_CLAIM: Final = re.compile(r"\{([^{}\s]{1,100})\}")
_OF_EVERY_TOKEN: Final = frozenset({"iss", "aud", "azp", "exp", "iat", "nbf", "typ"})

_OWNERS: Final[Mapping[str, frozenset[str]]] = {
    "https://token.actions.githubusercontent.com": frozenset(
        {"repository", "repository_id", "repository_owner", "repository_owner_id", "sub"}
    ),
    "https://gitlab.com": frozenset({"namespace_id", "namespace_path", "project_id", "project_path", "sub", "email"}),
    "https://accounts.google.com": frozenset({"hd", "email", "sub"}),
}
"""Issuers at which anybody gets an account, with the claims that say whose account it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The rights of holders of ID tokens with certain claims.

    Attributes:
        claims: each claim with its text, or with a pattern in which ``*`` means any characters. A claim that is a list
            must contain the text.
        actor: the name of the actor, in which ``{claim}`` is replaced by the text of a claim.
        role, datasets: see ``AccessToken``. Datasets need not exist yet.
    """

    claims: Mapping[str, str]
    role: Role
    datasets: tuple[str, ...] = ("*",)
    actor: str = "{sub}"

    def matches(self, claims: Mapping[str, Any]) -> bool:
        """Whether an ID token has the claims.

        >>> binding = Binding(claims={"repository": "lab/*", "groups": "data"}, role=Role.READER)
        >>> binding.matches({"repository": "lab/digits", "groups": ["data", "web"]})
        True
        >>> binding.matches({"repository": "elsewhere/lab/digits", "groups": ["data"]})
        False
        """
        for name, pattern in self.claims.items():
            value = claims.get(name)
            values = value if isinstance(value, list) else [value]
            # Not fnmatch, for which brackets are special, too.
            expression = re.escape(pattern).replace(r"\*", ".*")
            if not any(re.fullmatch(expression, text, re.DOTALL) for text in map(_text_of, values) if text is not None):
                return False
        return True

    def actor_of(self, claims: Mapping[str, Any]) -> str | None:
        """The name of the actor; None if the ID token lacks one of its claims."""
        texts = {name: _text_of(claims.get(name)) for name in _CLAIM.findall(self.actor)}
        return None if None in texts.values() else _CLAIM.sub(lambda match: str(texts[match[1]]), self.actor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An issuer of ID tokens for one audience.

    Attributes:
        name: names it in the log and on the button to sign in, e.g. ``github``.
        url: the claim ``iss`` of its tokens.
        audience: the claim ``aud``; "" is the client, else the URL of the service.
        client_id: that of the service at the issuer, so that people sign in there; "" for programs only.
        client_secret: its secret; "" for a public client.
        scope: what is requested when people sign in.
        minutes: how long access tokens are valid that it leads to; 0 is 15, or 12 hours where people sign in.
        bindings: what its tokens give rights to; the first that matches counts.
    """

    name: str
    url: str
    bindings: tuple[Binding, ...]
    audience: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = "openid email"
    minutes: int = 0

    def __post_init__(self) -> None:
        usual = _PERSON_MINUTES if self.client_id else _CI_MINUTES
        object.__setattr__(self, "minutes", self.minutes or usual)
        object.__setattr__(self, "audience", self.audience or self.client_id)


def read_issuers(content: Any, place: Place) -> tuple[Issuer, ...]:
    """The issuers that a list of mappings describes.

    Raises:
        UsageError: a value is missing, unknown or unusable, or a binding gives rights to everybody. The message says
            where. A secret is not repeated.
    """
    _check("issuers", content, "issuers", place)
    issuers = []
    for number, entry in enumerate(content):
        path = join_key("issuers", number)
        values = _values_of(entry, path, place, Issuer)
        bindings = []
        for index, each in enumerate(values["bindings"]):
            inner = join_key(f"{path}.bindings", index)
            bindings.append(_binding(_values_of(each, inner, place, Binding), inner, place, values["url"]))
        issuers.append(Issuer(**{**values, "bindings": tuple(bindings)}))
    for key, meaning in (("name", "name"), ("url", "url and audience")):
        seen = set()
        for number, issuer in enumerate(issuers):
            value = issuer.name if key == "name" else (issuer.url, issuer.audience)
            if value in seen:
                path = join_key(join_key("issuers", number), key)
                raise _unusable(path, place, f"another issuer has the same {meaning}", "Merge the two.")
            seen.add(value)
    return tuple(issuers)


def _binding(values: dict[str, Any], path: str, place: Place, issuer: str) -> Binding:
    values["datasets"] = tuple(values.get("datasets", ["*"]))
    values["role"] = Role(values["role"])
    values["claims"] = {name: str(_text_of(value)) for name, value in values["claims"].items()}
    try:  # the rules for patterns
        now = datetime.now(UTC)
        rights = {name: values[name] for name in ("role", "datasets")}
        AccessToken(**rights, id="0" * 12, name="name", created_at=now, created_by="")
    except UsageError as error:
        raise _unusable(f"{path}.datasets", place, error.message, error.hint or "") from error
    selective = {
        name: text
        for name, text in values["claims"].items()
        if name not in _OF_EVERY_TOKEN and re.search(r"[^\W_]", text)
    }
    owners = _OWNERS.get(issuer.rstrip("/"))
    if not selective:
        raise _unusable(
            f"{path}.claims",
            place,
            "every account at the issuer has such claims",
            "Name a claim whose value only the intended accounts have.",
        )
    if owners is not None and not any(_names_owner(text) for name, text in selective.items() if name in owners):
        raise _unusable(
            f"{path}.claims",
            place,
            f"anybody can get an account at {issuer}, and have such claims",
            f"Name the owner without *: one of {', '.join(sorted(owners))}.",
        )
    return Binding(**values)


def _names_owner(text: str) -> bool:
    """Whether a pattern says who it is about: ``org/*`` and ``*@example.org``, but not ``org*`` or ``*/data``."""
    return "*" not in (text.rpartition("@")[2] if "@" in text else text.partition("/")[0])


def _text_of(value: Any) -> str | None:
    """The text of a claim, which is a text, a number, or true or false; None for any other."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else None


def _values_of(content: Any, path: str, place: Place, kind: type[Issuer | Binding]) -> dict[str, Any]:
    """The checked values of a mapping that describes a value of ``kind``."""
    if not isinstance(content, dict):
        raise _unusable(path, place, "expected names with values", "docs/sign-in.md has samples.")
    names = [part.name for part in fields(kind)]
    for name, value in content.items():
        inner = join_key(path, name)
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise _unusable(inner, place, "unknown setting", f"{hint}The settings are: {', '.join(names)}.")
        _check(name, value, inner, place)
    for part in fields(kind):
        if part.default is MISSING and part.name not in content:
            raise _unusable(path, place, f"{part.name} is missing", "docs/sign-in.md has samples.")
    return dict(content)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != "" and value == value.strip() and value.isprintable()


def _is_actor(value: object) -> bool:
    return _is_text(value) and not set("{}") & {*_CLAIM.sub("", str(value))}


_CHECKS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "issuers": ("a list of issuers", lambda value: isinstance(value, list)),
    "bindings": ("a list of bindings", lambda value: isinstance(value, list) and value != []),
    "name": (
        "letters, digits, '.', '_' and '-', at most 40",
        lambda value: isinstance(value, str) and _NAME.fullmatch(value) is not None,
    ),
    "url": ("https://host/path, or a URL of this machine", lambda value: is_secure_url(value) and "?" not in value),
    "audience": ("a text", _is_text),
    "client_id": ("a text", _is_text),
    "client_secret": ("a text", _is_text),
    "scope": ("words such as openid email", _is_text),
    "minutes": (
        f"a number from 1 to {_MOST_MINUTES}",
        lambda value: type(value) is int and 1 <= value <= _MOST_MINUTES,
    ),
    "claims": (
        "claims with their texts, e.g. repository: lab/digits",
        lambda value: isinstance(value, dict) and None not in map(_text_of, value.values()),
    ),
    "actor": ("a text with claims in braces, e.g. {repository}@{ref}", _is_actor),
    "role": (", ".join(Role), lambda value: value in list(Role)),
    "datasets": (
        "a list of patterns, e.g. lab_*",
        lambda value: isinstance(value, list) and all(isinstance(part, str) for part in value),
    ),
}


def _check(name: str, value: Any, path: str, place: Place) -> None:
    expected, is_valid = _CHECKS[name]
    if not is_valid(value):
        is_secret = is_secret_name(name) or isinstance(value, list | dict)  # they may have one
        text = "***" if is_secret else mask(repr(value))[:80]
        hint = "Correct it; docs/sign-in.md has samples."
        raise UsageError(f"{place(path)} is {text}: expected {expected}", hint=hint, details={"name": path})


def _unusable(path: str, place: Place, reason: str, hint: str) -> UsageError:
    return UsageError(f"{place(path)}: {reason}", hint=hint, details={"name": path})
