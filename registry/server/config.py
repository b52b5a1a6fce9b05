"""The settings of ``registry serve``: from its options, environment variables and a YAML file, in that order."""

from __future__ import annotations

import difflib
import json
import os
import re
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from registry.catalog.service_index import CLIENT_SETTINGS, is_client_setting
from registry.environment import read_variable
from registry.errors import PinFormatError, UsageError
from registry.masking import mask
from registry.pins.yaml_text import read_yaml
from registry.server.issuers import Issuer, read_issuers
from registry.storage import expand_home, read_file

PREFIX: Final = "REGISTRY_SERVE_"
"""What the variable of each setting begins with: ``port`` is ``REGISTRY_SERVE_PORT``."""

CONFIG_VARIABLE: Final = "REGISTRY_SERVE_CONFIG"
"""The path of the YAML file, without ``--config``."""

_WORDS: Final = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_LEAST_SECRET: Final = 16


def _number(default: int, least: int, most: int) -> int:
    return field(default=default, metadata={"least": least, "most": most})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """The settings of a service. Limits apply to each worker, except for those per minute.

    Attributes:
        catalog: path or URL of the database. None means the default catalog.
        data_dir: path or URL of the data directory, which the service records at startup if the catalog records none.
            None means the one that the catalog records.
        public_url: the URL of the service for clients, if it is behind a proxy.
        allowed_hosts: names or addresses, without ports, that the header ``Host`` may have besides ``host`` and that of
            ``public_url``. Empty allows every host.
        cors_origins: origins whose pages may read the API in a browser, with a token or as everybody; ``*`` means all.
        host, port: the address to listen on; port 0 chooses a free port.
        workers: the number of worker processes.
        anonymous_reads: whether clients without a token may read every dataset.
        signed_reads: whether readers get signed URLs of an object store, for which they need no rights of their own.
        signed_writes: whether publishers get signed URLs as well, including for uploads; see docs/service.md.
        trusted_proxies: addresses or networks whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are trusted.
        metrics_token: a secret that may read ``/metrics``, like an admin token.
        session_key: a secret that signs the sessions of the pages. None generates one at each start. Services on
            several machines behind one URL need the same key.
        issuers: the issuers of ID tokens with which people and programs sign in; see docs/sign-in.md.
        clients: defaults for clients of the team, which everybody can read; see ``CLIENT_SETTINGS``.
        mcp: whether agents get read-only tools, at ``/mcp``.
        webhook_key: a secret that signs the messages of webhooks. With a second key, messages have both signatures, so
            that receivers can change their secret. Without a key, no webhook is delivered.
        webhook_hosts: addresses or networks that are not public and may receive messages of webhooks; or localhost.
        requests_per_minute: the limit for each token, except for files; 0 means no limit.
        failed_logins_per_minute: the limit for each address; 0 means no limit.
        in_flight: the maximum number of concurrent requests; others get status 503.
        body_bytes: the maximum size of the body of a call: a version with half a million shards has 90 to 115 MB as
            JSON. A call of a reader has at most 16 MiB.
        body_seconds: the maximum time that a client may take for the body of a request.
        free_bytes: how much of the disk of the data directory uploads must leave free.
        stop_seconds: the maximum time of requests in flight after SIGTERM.

    Raises:
        UsageError: a value has the wrong type, or is out of range.
    """

    catalog: str | None = None
    data_dir: str | None = None
    public_url: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = _number(8080, 0, 65535)
    workers: int = _number(1, 1, 256)
    anonymous_reads: bool = False
    signed_reads: bool = False
    signed_writes: bool = False
    trusted_proxies: tuple[str, ...] = ()
    metrics_token: str | None = field(default=None, repr=False)
    session_key: str | None = field(default=None, repr=False)
    issuers: tuple[Issuer, ...] = ()
    mcp: bool = False
    webhook_key: tuple[str, ...] = field(default=(), repr=False)
    webhook_hosts: tuple[str, ...] = ()
    clients: Mapping[str, Any] | None = None
    requests_per_minute: int = _number(6000, 0, 10**9)
    failed_logins_per_minute: int = _number(30, 0, 10**9)
    in_flight: int = _number(64, 1, 10**5)
    body_bytes: int = _number(2**27, 2**10, 2**32)
    body_seconds: int = _number(30, 1, 3600)
    free_bytes: int = _number(2**28, 0, 2**50)
    stop_seconds: int = _number(30, 0, 3600)

    def __post_init__(self) -> None:
        for name in _FIELDS:
            _check(name, getattr(self, name), name)
        if self.issuers and self.public_url is None:  # a client may say any other URL, in the header Host
            raise UsageError(
                "the setting issuers needs the setting public_url, because ID tokens are bound to that URL",
                hint="public_url: https://catalog.example/",
                details={"name": "public_url"},
            )


_FIELDS: Final = {each.name: each for each in fields(ServiceConfig)}
_KINDS: Final = typing.get_type_hints(ServiceConfig)


def load_config(path: str | os.PathLike[str] | None = None, **options: Any) -> ServiceConfig:
    """Load the settings: an option that is not None, else the variable, else the value in the file, else the default.

    Args:
        path: the YAML file. None means ``$REGISTRY_SERVE_CONFIG``, if it is set.
        options: settings by name.

    Raises:
        UsageError: the file cannot be read, a setting is unknown, or its value is invalid. The message names the file
            and the line, or the variable, but never repeats a secret.
    """
    path = read_variable(CONFIG_VARIABLE) or None if path is None else path
    values = {} if path is None else dict(_of_file(os.fspath(path)))
    values |= dict(_of_environment(os.environ))
    options = {name: value for name, value in options.items() if value is not None}
    for name, value in options.items():
        _check(name, value, f"--{name.replace('_', '-')}")
    return ServiceConfig(**values | options)


def source_of(name: str, path: str | os.PathLike[str] | None, option: Any) -> str:
    """The source of a setting: its option, its variable, the file, or ``""`` for the default."""
    path = read_variable(CONFIG_VARIABLE) or None if path is None else path
    if option is not None:
        return f"--{name.replace('_', '-')}"
    if read_variable(f"{PREFIX}{name.upper()}").strip():
        return f"{PREFIX}{name.upper()}"
    is_in_file = path is not None and name in dict(_of_file(os.fspath(path)))
    return f"{name} of {os.fspath(path)}" if path is not None and is_in_file else ""


def _of_file(path: str) -> Iterator[tuple[str, Any]]:
    try:
        document = read_yaml(read_file(expand_home(path)), path)
    except OSError as error:
        raise UsageError(
            f"{path or repr(path)} cannot be read: {error.strerror or error}", hint="Check --config."
        ) from error
    except PinFormatError as error:
        hint = error.hint if "registry pin" not in (error.hint or "registry pin") else "docs/service.md has a sample."
        raise UsageError(error.message, hint=hint, details=error.details) from error
    for name, content in document.value.items():
        place = f"{path}, line {document.lines.get(name, 1)}: {name}"
        if name not in _FIELDS:
            raise _unknown(name, place, list(_FIELDS))
        if name == "issuers":
            yield name, read_issuers(content, lambda key: f"{path}, line {document.lines.get(key, 1)}: {key}")
            continue
        value = tuple(content) if isinstance(content, list) else content
        if isinstance(value, str) and typing.get_origin(_KINDS[name]) is tuple:
            value = _items_of(value)
        _check(name, value, place)
        yield name, value


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    for variable in sorted(environment):
        text = environment[variable].strip()
        name = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or not text or variable == CONFIG_VARIABLE:
            continue
        if name not in _FIELDS:
            raise _unknown(variable, variable, [f"{PREFIX}{each.upper()}" for each in _FIELDS])
        value: Any = text
        if _KINDS[name] is bool:
            value = _WORDS.get(text.lower(), text)
        elif _KINDS[name] is int:
            value = int(text) if text.isdecimal() and text.isascii() and len(text) < 12 else text
        elif name == "clients":
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
        elif name == "issuers":
            value = read_issuers(_json_of(text), f"{variable}: {{}}".format)
        elif typing.get_origin(_KINDS[name]) is tuple:
            value = _items_of(text)
        _check(name, value, variable)
        yield name, value


def _check(name: str, value: Any, place: str) -> None:
    """Raise UsageError unless a setting may have this value."""
    kind, least, most = _KINDS[name], *(_FIELDS[name].metadata.get(key, 0) for key in ("least", "most"))
    if kind is bool:
        expected, is_valid = "true or false", isinstance(value, bool)
    elif kind is int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        expected, is_valid = f"a number from {least} to {most}", is_number and least <= value <= most
    elif name == "trusted_proxies":
        expected = "addresses or networks, e.g. 10.0.0.1 or 10.0.0.0/8"
        is_valid = isinstance(value, tuple) and all(map(_is_network, value))
    elif name == "allowed_hosts":
        expected = "names or addresses without ports, e.g. catalog.example.org"
        is_valid = isinstance(value, tuple) and all(map(_is_host, value))
    elif name == "cors_origins":
        expected = "origins such as https://notebooks.example.org, or *"
        is_valid = isinstance(value, tuple) and all(each == "*" or _is_origin(each) for each in value)
    elif name == "clients":
        wrong = [key for key in value or () if not is_client_setting(key, value[key])] if _is_map(value) else ()
        known = wrong[0] if wrong and wrong[0] in CLIENT_SETTINGS else ""
        expected = f"{known}: {CLIENT_SETTINGS[known].expected}" if known else "a map of " + ", ".join(CLIENT_SETTINGS)
        is_valid = _is_map(value) and not wrong
    elif name == "issuers":
        expected, is_valid = "a list of issuers", all(isinstance(issuer, Issuer) for issuer in value)
    elif name == "webhook_key":
        expected = f"one or two texts of at least {_LEAST_SECRET} characters"
        is_valid = isinstance(value, tuple) and len(value) <= 2 and all(map(_is_secret, value))
    elif name == "webhook_hosts":
        expected = "localhost, addresses or networks, e.g. 10.0.0.1 or 10.0.0.0/8"
        is_valid = isinstance(value, tuple) and all(each == "localhost" or _is_network(each) for each in value)
    elif name in ("metrics_token", "session_key"):
        expected, is_valid = f"a text of at least {_LEAST_SECRET} characters", value is None or _is_secret(value)
    elif name == "public_url":
        expected, is_valid = "https://host/ or http://host/", value is None or _is_web_url(value)
    else:
        expected, is_valid = "a text", (value is None and name != "host") or (isinstance(value, str) and value != "")
    if not is_valid:
        shown = mask(repr(value))[:80] if _FIELDS[name].repr else "***"
        usual = json.dumps(_FIELDS[name].default)  # as in YAML; some settings have none
        default = "" if usual in ("null", "[]") else f" The default is {usual}."
        raise UsageError(
            f"{place} is {shown}: expected {expected}",
            hint=f"Correct it, or leave it out.{default}",
            details={"name": name},
        )


def _items_of(text: str) -> tuple[str, ...]:
    """The items of a list that is written as a text, separated by commas."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_map(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_network(text: object) -> bool:
    try:
        ip_network(str(text))
    except ValueError:
        return False
    return isinstance(text, str)


def _is_host(value: object) -> bool:
    is_name = isinstance(value, str) and re.fullmatch(r"[\w.-]+", value) is not None
    return is_name or (_is_network(value) and "/" not in str(value))


def _is_origin(value: object) -> bool:
    return isinstance(value, str) and _is_web_url(f"{value}/") and value.count("/") == 2


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and len(value) >= _LEAST_SECRET and value.isascii() and value.isprintable()


def _is_web_url(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        url = urlsplit(value)
        return url.scheme in ("http", "https") and bool(url.hostname) and "@" not in url.netloc and url.port != 0
    except ValueError:
        return False


def _unknown(name: str, place: str, names: list[str]) -> UsageError:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return UsageError(
        f"{place}: unknown setting",
        hint=f"{hint}The settings are: {', '.join(names)}.",
        details={"name": name},
    )
