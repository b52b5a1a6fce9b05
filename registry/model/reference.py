"""``Reference``: parses and prints ``name[/config][:request | @alias]``, and checks names.

It also parses the name strings of TFDS: names in CamelCase are folded to snake_case, and config and version may
follow the last ``/`` as ``config=en,version=2.0.0``. The printed form is always the plain one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from registry.argument_types import require_type
from registry.errors import ReferenceSyntaxError
from registry.masking import may_hide_secret
from registry.model.generic_names import plain_name
from registry.model.version import Version, VersionRequest

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,199}")
_CONFIG = re.compile(r"(?=.*[a-zA-Z0-9])[a-zA-Z0-9_+.-]{1,200}")
_ALIAS = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,199}")
_REFERENCE = re.compile(
    r"(?P<name>[^/:@]*)(?:/(?P<config>[^/:@=]*))?(?::(?P<request>[^/@]*)|@(?P<alias>[^/]*))?(?:/(?P<options>.*))?",
    flags=re.DOTALL,
)
_REFERENCE_FORMS: Final = "Write name[/config][:version] or name[/config]@alias, e.g. mnist/plain:3.*.*."

_MOST_TEXT: Final = 2_000
_OPTION_NAMES = ("config", "version")
_HUMP = re.compile(r"(.)([A-Z][a-z0-9]+)")
_LAST_HUMP = re.compile(r"([a-z0-9])([A-Z])")


@dataclass(frozen=True, slots=True)
class Reference:
    """A dataset, or a version of it, as people write it.

    ``request`` and ``alias`` cannot be combined. Without both, it means the canonical version. Without a ``config``, it
    means the default config.

    >>> reference = Reference.parse("mnist/plain:3.*")
    >>> reference.name, reference.config, str(reference.request)
    ('mnist', 'plain', '3.*.*')
    >>> str(reference)
    'mnist/plain:3.*.*'

    Raises:
        ReferenceSyntaxError: a part is malformed.
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
                raise ReferenceSyntaxError("a reference can have a version request or an alias, not both")

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Parse ``name[/config][:request | @alias]``, or a name string of TFDS.

        Args:
            text: the reference.

        Raises:
            ReferenceSyntaxError: the text is malformed.

        >>> str(Reference.parse("OpenImagesV4/config=original,version=1.*.*"))
        'open_images_v4/original:1.*.*'
        """
        require_type("a reference", text, str)
        _refuse_secret(text, "dataset reference", hint=_REFERENCE_FORMS)
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise _bad_reference(text)
        config, request = match["config"], match["request"]
        if request is not None and _NAME.fullmatch(request.partition(":")[0]):
            raise _bad_name_string(text, request, has_more=":" in request or match["options"] is not None)
        if match["options"] is not None:
            options = _read_options(text, match["options"])
            for option, given in (("config", config), ("version", request)):
                if given is not None and option in options:
                    raise _named_twice(text, option)
            config, request = options.get("config", config), options.get("version", request)
        return cls(
            name=fold_name(check_name(match["name"])),
            config=config,
            request=None if request is None else VersionRequest.parse(request),
            alias=match["alias"],
        )

    @classmethod
    @lru_cache(1024)  # every value of a version makes its reference, often many times in a row
    def exactly(cls, name: str, config: str | None, version: Version) -> Reference:
        """The exact reference of one version.

        Args:
            name: name of the dataset.
            config: its config, or None.
            version: the version.
        """
        return cls(name=name, config=config, request=VersionRequest.exactly(version))

    @property
    def exact(self) -> Version | None:
        """The version if the reference names one exactly; None for a range, an alias or no version."""
        return None if self.request is None else self.request.exact

    @property
    def dataset(self) -> str:
        """``name`` or ``name/config``, without the version."""
        return self.name if self.config is None else f"{self.name}/{self.config}"

    def __str__(self) -> str:
        if self.alias is not None:
            return f"{self.dataset}@{self.alias}"
        return self.dataset if self.request is None else f"{self.dataset}:{self.request}"


def check_name(name: str) -> str:
    """Check the name of a dataset, an ASCII letter followed by letters, digits and ``_``, and return it."""
    hint = "A dataset name is a letter followed by letters, digits and '_', e.g. {}."
    return _matched(_NAME, name, "dataset name", hint=hint, key="name")


def fold_name(name: str) -> str:
    """A dataset or class name as TFDS folds it: ``MyDataset`` is ``my_dataset``, ``HTTPServer`` is ``http_server``.

    >>> fold_name("OpenImagesV4"), fold_name("MNIST"), fold_name("open_images_v4")
    ('open_images_v4', 'mnist', 'open_images_v4')
    """
    return _LAST_HUMP.sub(r"\1_\2", _HUMP.sub(r"\1_\2", name)).lower()


def nearest_name(text: str) -> str:
    """The valid name of a dataset that is nearest to ``text``; empty if it has no letter or digit.

    >>> nearest_name("Sales, north"), nearest_name("2024.csv"), nearest_name("?")
    ('sales_north', 'data_2024_csv', '')
    """
    name = re.sub(r"_+", "_", fold_name(plain_name(text)))
    return f"data_{name}" if name[:1].isdigit() else name


def check_new_name(name: str) -> str:
    """Check the name of a new dataset, which must be in the folded form because look-ups fold names, and return it."""
    if fold_name(check_name(name)) != name:
        raise ReferenceSyntaxError(
            f"a dataset cannot be named {name[:80]!r}: look-ups fold names to lower case, as TFDS does",
            hint=f"Use the name {fold_name(name)[:80]}.",
            details={"name": name[:80], "folded": fold_name(name)[:80]},
        )
    return name


def rename_note(present: str, name: str) -> str | None:
    """A note if ``name`` is a former name of the dataset ``present``, or None."""
    return None if name == present else f"{name} was renamed to {present}"


def check_config(config: str) -> str:
    """Check the name of a config: letters, digits and ``_ + . -``, with at least one letter or digit; and return it."""
    hint = "A config name consists of letters, digits and '_', '+', '.', '-', e.g. mnist/plain."
    hint += " Write the version separately: name/config:version." if ":" in str(config) else ""
    return _matched(_CONFIG, config, "config name", hint=hint, key="config")


def is_config(config: str) -> bool:
    """Whether ``config`` is a valid name of a config."""
    return _CONFIG.fullmatch(config) is not None


def check_alias(alias: str) -> str:
    """Check an alias, a letter followed by letters, digits and ``_ . -``, so it is never a request; and return it."""
    hint = "An alias is a letter followed by letters, digits and '_', '.', '-', e.g. mnist@paper."
    return _matched(_ALIAS, alias, "alias", hint=hint, key="alias")


def _matched(pattern: re.Pattern[str], text: str, subject: str, *, hint: str, key: str) -> str:
    require_type(f"the {subject}", text, str)
    _refuse_secret(text, subject, hint=hint.format("mnist"))
    if not pattern.fullmatch(text):
        hint = hint.format(nearest_name(text[:80]) or "mnist")
        hint += f" It has at most 200 characters, and this one has {len(text)}." if len(text) > 200 else ""
        raise ReferenceSyntaxError(f"invalid {subject} {text[:80]!r}", hint=hint, details={key: text[:80]})
    return text


def _refuse_secret(text: str, subject: str, *, hint: str) -> None:
    """Refuse a text that may contain a password, before a message repeats it, or that is too long to search."""
    if len(text) > _MOST_TEXT:
        raise ReferenceSyntaxError(f"invalid {subject}: it has more than {_MOST_TEXT:,} characters", hint=hint)
    if "://" in text or may_hide_secret(text):
        message = f"invalid {subject}: it looks like a URL or a password, so it is not shown"
        raise ReferenceSyntaxError(message, hint=hint)


def _read_options(text: str, options: str) -> dict[str, str]:
    """The options after the last ``/``: option ( "," option )*, option := ( "config" | "version" ) "=" text."""
    read: dict[str, str] = {}
    for option in options.split(","):
        name, equals, value = option.partition("=")
        if not equals or not name or not value or "=" in value.lstrip("^~<>=!"):
            raise _bad_reference(text)
        if name not in _OPTION_NAMES:
            raise ReferenceSyntaxError(
                f"the reference {text[:80]!r} has the option {name[:80]!r}: expected config or version",
                hint="Other options of a builder are fields of its configs: name the config, e.g. mnist/plain.",
                details={"reference": text[:80], "option": name[:80]},
            )
        if name in read:
            raise _named_twice(text, name)
        read[name] = value
    return read


def _named_twice(text: str, option: str) -> ReferenceSyntaxError:
    return ReferenceSyntaxError(
        f"the reference {text[:80]!r} names its {option} twice",
        hint="Write it once, e.g. mnist/plain:3.*.*.",
        details={"reference": text[:80], "option": option},
    )


def _bad_reference(text: str) -> ReferenceSyntaxError:
    return ReferenceSyntaxError(
        f"invalid dataset reference {text[:80]!r}",
        hint=_REFERENCE_FORMS,
        details={"reference": text[:80]},
    )


def _bad_name_string(text: str, word: str, *, has_more: bool) -> ReferenceSyntaxError:
    """The error for a word after ``:``. TFDS reads the part before it as a namespace."""
    before, _, after = text.partition(":")
    if has_more:
        return ReferenceSyntaxError(
            f"the reference {text[:80]!r} has the namespace {before[:80]!r}, but catalogs do not have namespaces",
            hint=f"Leave out the namespace: {after[:80]}",
            details={"reference": text[:80], "namespace": before[:80]},
        )
    highest = f"The highest version, experimental ones included, is {before[:60]}:*. "
    return ReferenceSyntaxError(
        f"invalid version request {word[:60]!r}",
        hint=(
            highest
            if word == "experimental_latest"
            else "Write a version (3.0.1), a wildcard (3.*.*, 3.*, 3) or a range (^3.1, ~3.1, >=3.1,<4). "
            f"An alias follows '@': {before[:60]}@{word[:60]}. "
        )
        + "TFDS's namespaces are not supported.",
        details={"request": word[:60]},
    )


def covers(patterns: Iterable[str], name: str, config: str | None = None) -> bool:
    """Whether one of the patterns covers a config of a dataset; see ``AccessToken.covers``."""
    for pattern in patterns:
        of_name, _, of_config = pattern.partition("/")
        if fnmatchcase(name, of_name) and (not of_config or (config and fnmatchcase(config, of_config))):
            return True
    return False
