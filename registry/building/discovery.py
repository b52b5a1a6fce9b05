"""Finds the code of builders by entry point, and loads one at a time.

A package offers a dataset with a line in its pyproject.toml::

    [project.entry-points."registry.builders"]
    squares = "my_package.squares:Squares"

Listing loads nothing, so a package that cannot be imported harms nobody until its builder is asked for.
"""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from registry.building.builder import DatasetBuilder
from registry.errors import BuilderNotFoundError, BuildError, ConfigNotFoundError, ReferenceSyntaxError, UsageError
from registry.model import Reference, VersionRequest

ENTRY_POINT_GROUP: Final = "registry.builders"

_CODE = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<class>[A-Za-z_]\w*)", flags=re.ASCII)
_CHOICE = re.compile(r"(?:/(?P<config>[^/:@\s]+))?(?::(?P<version>[^/:@]+))?")


def list_builders() -> tuple[str, ...]:
    """Names of the installed builders, sorted. Nothing is imported."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINT_GROUP)}))


def open_builder(wanted: str | Reference | type[DatasetBuilder] | DatasetBuilder) -> DatasetBuilder:
    """One version of one config, ready to build: of an installed builder, of code, or of a class at hand.

    Text is a reference, ``name[/config][:request]``, or names code, ``package.module:Class[/config][:request]``. The
    two cannot be taken for each other: a request never starts with a letter, and what starts with a capital is a class.

    Raises:
        BuilderNotFoundError, BuildError: see ``find_builder`` and ``load_builder``.
        VersionNotFoundError, ConfigNotFoundError: the code cannot build what is asked for.
        UsageError: what follows the class is neither a config nor a version.
    """
    if isinstance(wanted, DatasetBuilder):
        return wanted
    if isinstance(wanted, type):
        return wanted()
    if isinstance(wanted, str):
        code = _CODE.match(wanted)
        if code is not None and ("." in code["module"] or code["class"][0].isupper()):
            return _open_code(code.group(), wanted[code.end() :])
        wanted = Reference.parse(wanted)
    return find_builder(wanted.name).pick(wanted)


def find_builder(name: str) -> type[DatasetBuilder]:
    """The class of the installed builder ``name``.

    Raises:
        BuilderNotFoundError: no installed package offers it; the hint offers the nearest name.
        BuildError: two packages offer it, or its package cannot be imported or offers something else.
    """
    points = {(point.value, _package_of(point)): point for point in entry_points(group=ENTRY_POINT_GROUP, name=name)}
    if not points:
        raise BuilderNotFoundError.of(name, list_builders(), where="the installed packages")
    if len(points) > 1:
        offers = sorted(f"{package} ({value})" for value, package in points)
        raise BuildError(
            f"the builder {name!r} is offered by {len(points)} packages: {', '.join(offers)}",
            hint="Uninstall all but one, or name the code itself with load_builder('package.module:Class').",
            details={"name": name, "offers": offers},
        )
    (point,) = points.values()
    what = f"the builder {name!r} of {_package_of(point)} ({point.value})"
    try:
        found: Any = point.load()
    except Exception as error:
        raise _not_loaded(what, error) from error
    builder = _check_builder(found, what)
    if builder.name != name:
        raise BuildError(
            f"{what} calls itself {builder.name!r}",
            hint=f"The entry point and the builder must have one name: set {builder.__name__}.name = {name!r}, "
            "or rename the entry point.",
            details={"name": name, "class_name": builder.name},
        )
    return builder


def load_builder(code: str) -> type[DatasetBuilder]:
    """The builder class that ``package.module:Class`` names: code that is importable, and need not be an entry point.

    The module is imported as Python finds it, from what is installed or on PYTHONPATH. The current folder is not
    searched, because a command should not run code that happens to lie where it is called.

    Raises:
        BuilderNotFoundError: the text has another form, or the module or class does not exist.
        BuildError: the module cannot be imported, or the class is not a DatasetBuilder.
    """
    match = _CODE.fullmatch(code)
    if match is None:
        raise BuilderNotFoundError(
            f"no builder {code[:120]!r}: builder code is named package.module:Class",
            hint="Write e.g. my_package.squares:Squares.",
            details={"name": code[:120]},
        )
    what = f"the builder {code}"
    try:
        module = import_module(match["module"])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{match['module']}.".startswith(f"{error.name}."):
            raise _not_loaded(what, error) from error  # found, and something that it imports is missing
        raise BuilderNotFoundError(
            f"no builder {code!r}: there is no module {error.name!r}",
            # The usual first attempt is a module in the current folder.
            hint=f"It is in this folder, which is not on Python's path: PYTHONPATH=. registry build {shlex.quote(code)}"
            if Path(f"{error.name}.py").is_file() or Path(error.name).is_dir()
            else "Install the package that holds it, or put its folder on PYTHONPATH.",
            details={"name": code},
        ) from error
    except Exception as error:
        raise _not_loaded(what, error) from error
    if not hasattr(module, match["class"]):
        builders = [name for name, value in vars(module).items() if _is_builder(value)]
        raise BuilderNotFoundError.of(match["class"], builders, where=f"the module {match['module']}")
    return _check_builder(getattr(module, match["class"]), what)


def _open_code(code: str, behind: str) -> DatasetBuilder:
    """The builder of ``code`` for what follows its class: ``[/config][:request]``."""
    choice = _CHOICE.fullmatch(behind)
    if choice is None:
        raise UsageError(
            f"the builder {code} cannot be followed by {behind[:60]!r}",
            hint=f"Behind the class stand a config and a version, each if need be: {code}[/config][:version].",
            details={"builder": code, "behind": behind[:60]},
        )
    config, version = choice["config"], choice["version"]
    builder = load_builder(code)
    if config is not None and not builder.configs():
        raise ConfigNotFoundError.of(
            config, (), where=f"the builder {code}", hint=f"It has no configs: write {code}[:version]."
        )
    request = None
    if version is not None:
        try:
            request = VersionRequest.parse(version)
        except ReferenceSyntaxError as error:
            raise UsageError(
                f"the builder {code} cannot build {version[:60]!r}, which is no version",
                hint=f"Write a version or a wildcard, e.g. {code}:1.0.0 or {code}:1.*, or none for the canonical one.",
                details={"builder": code, "version": version[:60]},
            ) from error
    return builder(config=config, version=request)


def _is_builder(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, DatasetBuilder) and value is not DatasetBuilder


def _check_builder(found: Any, what: str) -> type[DatasetBuilder]:
    if not _is_builder(found):
        raise BuildError(f"{what} is no subclass of registry.building.DatasetBuilder")
    builder: type[DatasetBuilder] = found
    return builder


def _package_of(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _not_loaded(what: str, error: Exception) -> BuildError:
    return BuildError(
        f"{what} cannot be loaded: {type(error).__name__}: {error}",
        hint="Mend or uninstall that package; other builders are not affected.",
        details={"error": type(error).__name__},
    )
