"""Finds builder classes by entry point or by module and class, and imports one at a time.

A package offers a dataset with a line in its pyproject.toml::

    [project.entry-points."registry.builders"]
    squares = "my_package.squares:Squares"

Listing builders imports nothing: a package that cannot be imported is reported only when its builder is requested.
``open_builder`` hands the builder to ``build``.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from registry.building.author_code import author_error, not_a_builder, tfds_module_error
from registry.building.builder import DatasetBuilder, check_class, check_instance, make_builder
from registry.errors import (
    BuilderNotFoundError,
    BuildError,
    ConfigNotFoundError,
    ReferenceSyntaxError,
    UsageError,
    WrongTypeError,
    suggest,
)
from registry.model import Reference, VersionRequest
from registry.plugins import BUILDERS, list_plugins, package_of

_CODE = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<class>[^\W\d]\w*)")
_CHOICE = re.compile(r"(?:/(?P<config>[^/:@\s]+))?(?::(?P<version>[^/:@]+))?")


def list_builders() -> tuple[str, ...]:
    """Return the names of the installed builders, sorted. Nothing is imported."""
    return tuple(sorted({point.name for point in list_plugins(BUILDERS)}))


def open_builder(wanted: str | Reference | type[DatasetBuilder] | DatasetBuilder) -> DatasetBuilder:
    """Return a builder of one version of one config, ready to build.

    Args:
        wanted: the reference of an installed builder, ``name[/config][:request]``; or code that can be imported,
            ``package.module:Class[/config][:request]``; or a builder class; or an instance, which is returned as it is.
            Text is code if the module has a dot or the class starts with a capital: a request never starts with a
            letter.

    Raises:
        BuilderNotFoundError: there is no such builder, module or class.
        BuildError: its code cannot be imported, or the class is faulty; names the author's file and line.
        VersionNotFoundError, ConfigNotFoundError: the code cannot build this version or config.
        UsageError: the text after the class is neither a config nor a version.
        WrongTypeError: ``wanted`` is something else.

    >>> str(open_builder("digits").reference)
    'digits:1.0.0'
    >>> str(open_builder("registry.builders.digits:Digits:1.*").reference)
    'digits:1.0.0'
    """
    if isinstance(wanted, DatasetBuilder):
        return check_instance(wanted)
    if isinstance(wanted, type):
        return make_builder(_check_builder(wanted, f"cannot build {wanted.__name__}"))
    if isinstance(wanted, str):
        code = _CODE.match(wanted)
        if code is not None and ("." in code["module"] or code["class"][0].isupper()):
            return _open_code(code.group(), wanted[code.end() :])
        wanted = Reference.parse(wanted)
    if not isinstance(wanted, Reference):
        raise WrongTypeError(
            f"expected a builder: a reference, package.module:Class, a class or an instance; found "
            f"{type(wanted).__name__}",
            hint='Write e.g. "digits", "my_package.squares:Squares", or pass the class Squares.',
            details={"type": type(wanted).__name__},
        )
    return find_builder(wanted.name).pick(wanted)


def find_builder(name: str) -> type[DatasetBuilder]:
    """Return the class of the installed builder ``name``.

    Raises:
        BuilderNotFoundError: no installed package offers it; the hint suggests the nearest name.
        BuildError: several packages offer it, its module cannot be imported, or the class is faulty.
    """
    points = list_plugins(BUILDERS, name)
    if not points:
        raise BuilderNotFoundError.of(name, list_builders(), where="the installed packages")
    if len(points) > 1:
        offers = sorted(f"{package_of(point)} ({point.value})" for point in points)
        raise BuildError(
            f"the builder {name!r} is offered by {len(points)} packages: {', '.join(offers)}",
            hint=f"Uninstall all but one, or name the code: registry build {shlex.quote(points[0].value)}",
            details={"name": name, "offers": offers},
        )
    (point,) = points
    subject = f"the builder {name!r} of {package_of(point)} ({point.value})"
    try:
        found: Any = point.load()
    except (Exception, SystemExit) as error:
        raise _not_loaded(subject, error, point.value) from error
    builder = _check_builder(found, subject)
    if builder.name != name:
        raise BuildError(
            f"{subject}: expected the name {name!r} of its entry point, found {builder.name!r}",
            hint=f'Add to {builder.__name__}: name = "{name}"\nOr rename the entry point: '
            f'{builder.name} = "{point.value}"',
            details={"name": name, "class_name": builder.name},
        )
    return builder


def load_builder(code: str) -> type[DatasetBuilder]:
    """Import the builder class ``package.module:Class``. It does not need an entry point.

    The module must be installed or on PYTHONPATH. The current folder is not searched: a command should not run code
    just because it is in the folder where the command is called.

    Raises:
        BuilderNotFoundError: the text is malformed, or the module or class does not exist.
        BuildError: the module cannot be imported, or the class is faulty or not a DatasetBuilder.

    >>> load_builder("registry.builders.digits:Digits").name
    'digits'
    """
    match = _CODE.fullmatch(code)
    if match is None:
        raise BuilderNotFoundError(
            f"no builder {code[:120]!r}: expected package.module:Class",
            hint="Write e.g. my_package.squares:Squares",
            details={"name": code[:120]},
        )
    subject = f"the builder {code}"
    try:
        module = import_module(match["module"])
    except ModuleNotFoundError as error:
        if error.name is None or not f"{match['module']}.".startswith(f"{error.name}."):
            raise _not_loaded(subject, error, code) from error  # the module exists; it imports a missing one
        raise BuilderNotFoundError(
            f"no builder {code!r}: there is no module {error.name!r}",
            # A common first attempt names a module in the current folder.
            hint=f"The module is in this folder. Run: PYTHONPATH=. registry build {shlex.quote(code)}"
            if Path(f"{error.name}.py").is_file() or Path(error.name).is_dir()
            else "Install the package that contains it, or add its folder to PYTHONPATH.",
            details={"name": code},
        ) from error
    except (Exception, SystemExit) as error:
        raise _not_loaded(subject, error, code) from error
    if not hasattr(module, match["class"]):
        builders = {name: _fault_of(value) for name, value in vars(module).items() if _is_builder(value)}
        usable = [name for name, fault in builders.items() if fault is None]
        unusable = [f"Cannot be used: {fault.message}" for fault in builders.values() if fault is not None]
        raise BuilderNotFoundError.of(
            match["class"],
            usable,
            where=f"the module {match['module']}",
            hint="\n".join(filter(None, [suggest(match["class"], usable), *unusable])),
        )
    return _check_builder(getattr(module, match["class"]), subject)


def _open_code(code: str, rest: str) -> DatasetBuilder:
    """The builder of ``code``; ``rest`` is the text after its class: ``[/config][:request]``."""
    choice = _CHOICE.fullmatch(rest)
    if choice is None:
        raise UsageError(
            f"the builder {code} cannot be followed by {rest[:60]!r}",
            hint=f"Only a config and a version can follow the class: {code}[/config][:version]",
            details={"builder": code, "behind": rest[:60]},
        )
    config, version = choice["config"], choice["version"]
    builder = load_builder(code)
    if config is not None and not builder.configs():
        raise ConfigNotFoundError.of(
            config, (), where=f"the builder {code}", hint=f"It has no configs. Write {code}[:version]"
        )
    request = None
    if version is not None:
        try:
            request = VersionRequest.parse(version)
        except ReferenceSyntaxError as error:
            raise UsageError(
                f"the builder {code} cannot build {version[:60]!r}, which is not a version",
                hint=f"Write a version or a wildcard, e.g. {code}:1.0.0 or {code}:1.*. "
                f"For the canonical version, write {code}.",
                details={"builder": code, "version": version[:60]},
            ) from error
    return make_builder(builder, config=config, version=request)


def _is_builder(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, DatasetBuilder) and value is not DatasetBuilder


def _fault_of(builder: type[DatasetBuilder]) -> BuildError | None:
    try:
        check_class(builder)
    except BuildError as error:
        return error
    return None


def _check_builder(found: Any, subject: str) -> type[DatasetBuilder]:
    if not _is_builder(found):
        name = getattr(found, "__name__", "")
        module = sys.modules.get(getattr(found, "__module__", None) or "")
        raise not_a_builder(subject, found, path=getattr(module, "__file__", None), name=name)
    builder: type[DatasetBuilder] = found
    check_class(builder)
    return builder


def _not_loaded(subject: str, error: BaseException, code: str) -> BuildError:
    """The error for a module that cannot be imported; ``code`` is ``package.module:Class``."""
    module, _, name = code.partition(":")
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and missing.partition(".")[0] in ("tensorflow_datasets", "tfds"):
        spec = find_spec(module)  # its parents can be imported, so the module itself raised the error
        advice = tfds_module_error(spec.origin, name) if spec is not None and spec.origin is not None else None
        if advice is not None:
            return advice
    hint = "Fix or uninstall that package. Other builders are not affected."
    if missing is not None:
        hint = f"Install the package that provides {missing}, or remove the import. Other builders are not affected."
    return author_error(f"{subject} cannot be loaded", error, hint=hint, details={"error": type(error).__name__})
