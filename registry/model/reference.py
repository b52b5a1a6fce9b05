"""Which dataset does a person mean? ``name[/config][:request | @alias]``, parsed and printed back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from registry.errors import ReferenceSyntaxError
from registry.model.version import Version, VersionRequest

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,199}")
_CONFIG = re.compile(r"(?=.*[a-zA-Z0-9])[a-zA-Z0-9_+.-]{1,200}")
_ALIAS = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,199}")
_REFERENCE = re.compile(
    r"(?P<name>[^/:@]*)(?:/(?P<config>[^:@]*))?(?::(?P<request>[^@]*)|@(?P<alias>.*))?", flags=re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A dataset as a person names it.

    ``request`` and ``alias`` exclude each other; with neither, the canonical version is meant. ``config`` None means
    the default config.

    >>> reference = Reference.parse("mnist/plain:3.*")
    >>> reference.name, reference.config, str(reference.request)
    ('mnist', 'plain', '3.*.*')
    >>> str(reference)
    'mnist/plain:3.*.*'

    Raises:
        ReferenceSyntaxError: a part is not of its form.
    """

    name: str
    config: str | None = None
    request: VersionRequest | None = None
    alias: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.config is not None:
            check_config(self.config)
        if self.alias is not None:
            check_alias(self.alias)
            if self.request is not None:
                raise ReferenceSyntaxError("a reference names a version request or an alias, not both")

    @classmethod
    def parse(cls, text: str) -> Reference:
        """The reference that ``text`` spells: ``name[/config][:request | @alias]``."""
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise ReferenceSyntaxError(
                f"invalid dataset reference {text[:80]!r}",
                hint="Write name[/config][:version] or name[/config]@alias, e.g. mnist/plain:3.*.*.",
                details={"reference": text[:80]},
            )
        request = match["request"]
        return cls(
            name=match["name"],
            config=match["config"],
            request=None if request is None else VersionRequest.parse(request),
            alias=match["alias"],
        )

    @classmethod
    def exactly(cls, name: str, config: str | None, version: Version) -> Reference:
        """The reference that names one version and nothing else."""
        return cls(name=name, config=config, request=VersionRequest.exactly(version))

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``, without the version."""
        return self.name if self.config is None else f"{self.name}/{self.config}"

    def __str__(self) -> str:
        if self.alias is not None:
            return f"{self.dataset}@{self.alias}"
        return self.dataset if self.request is None else f"{self.dataset}:{self.request}"


def check_name(name: str) -> str:
    """``name`` if it may name a dataset: an ASCII letter, then letters, digits and ``_``."""
    if not _NAME.fullmatch(name):
        raise ReferenceSyntaxError(
            f"invalid dataset name {name[:80]!r}",
            hint="A dataset name is a letter, then letters, digits and '_', e.g. mnist.",
            details={"name": name[:80]},
        )
    return name


def check_config(config: str) -> str:
    """``config`` if it may name a config: letters, digits and ``_ + . -``, at least one letter or digit."""
    if not _CONFIG.fullmatch(config):
        raise ReferenceSyntaxError(
            f"invalid config name {config[:80]!r}",
            hint="A config name holds letters, digits and '_', '+', '.', '-', e.g. mnist/plain.",
            details={"config": config[:80]},
        )
    return config


def check_alias(alias: str) -> str:
    """``alias`` if it may name a version: a letter, then letters, digits and ``_ . -``; so it is never a request."""
    if not _ALIAS.fullmatch(alias):
        raise ReferenceSyntaxError(
            f"invalid alias {alias[:80]!r}",
            hint="An alias is a letter, then letters, digits and '_', '.', '-', e.g. mnist@paper.",
            details={"alias": alias[:80]},
        )
    return alias
