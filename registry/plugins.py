"""Finds the builders, commands and engines that installed packages offer as entry points.

    [project.entry-points."registry.engines"]
    batch = "my_package.batch:open_engine"

Nothing of a package is imported before its entry point is loaded. ``docs/extending.md`` describes each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from registry.errors import RegistryError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILDERS: Final = "registry.builders"
COMMANDS: Final = "registry.commands"
ENGINES: Final = "registry.engines"


def list_plugins(group: str, name: str | None = None) -> list[EntryPoint]:
    """The entry points of a group, or only those called ``name``, sorted and without duplicates."""
    from importlib.metadata import entry_points  # it takes 15 ms, and most calls need no plugin

    points = entry_points(group=group) if name is None else entry_points(group=group, name=name)
    offers = {(point.name, point.value, package_of(point)): point for point in points}
    return [offers[offer] for offer in sorted(offers)]


def find_plugin(group: str, name: str) -> EntryPoint | None:
    """The entry point called ``name``, or None if no installed package offers it.

    Raises:
        UsageError: several packages offer it.
    """
    points = list_plugins(group, name)
    if len(points) > 1:
        offers = [f"{package_of(point)} ({point.value})" for point in points]
        raise UsageError(
            f"{group}: {name!r} is offered by {len(points)} packages: {', '.join(offers)}",
            hint="Uninstall all but one.",
            details={"group": group, "name": name, "offers": offers},
        )
    return points[0] if points else None


def load_plugin(point: EntryPoint, kind: Any, subject: str) -> Any:
    """Import the object of an entry point, which must be of the class ``kind``. ``subject`` names it in errors.

    Raises:
        UsageError: its module cannot be imported, or the object is not of this class.
    """
    subject = f"{subject} of {package_of(point)} ({point.value})"
    hint = "Fix or uninstall that package."
    try:
        result = point.load()
    except RegistryError:  # it says what to do, such as the extra to install
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"{subject} cannot be loaded: {type(error).__name__}: {error}", hint=hint) from error
    if not isinstance(result, kind):
        raise UsageError(f"{subject}: expected {kind.__name__}, found {type(result).__name__}", hint=hint)
    return result


def package_of(point: EntryPoint) -> str:
    """The package of an entry point, with its version."""
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
