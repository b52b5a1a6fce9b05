"""Digests the code that makes the records of a builder, so that no build uses runs of different code.

    classes and functions --> their packages or modules --> what these import --> sha256 of files, versions of packages

Imports are read from the text of the files, not from ``sys.modules``: another process that runs the same builder has
loaded other modules, and a function may import a module when it is called, on another machine. The packages of an
installation count by their versions; the author's own files are hashed.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import platform
import re
import sys
import sysconfig
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

_MOST_SOURCES: Final = 10_000
_OURS: Final = "registry"
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})

# import := "from" ["."...] [name] "import" ("(" names ")" | names) | "import" names It also matches such lines in
# texts, which name no file, or an additional file.
_IMPORT: Final = re.compile(
    r"(?:^|[:;])[ \t]*(?:from[ \t]*(?P<base>[.\w]+)[ \t]+import\b[ \t]*(?P<names>\([^)]*\)|[^\n;]*)"
    r"|import[ \t]+(?P<modules>[^\n;]*))",
    flags=re.MULTILINE,
)
_COMMENT: Final = re.compile(r"#[^\n]*|\\\r?\n")


class _CodeFile(NamedTuple):
    """A file of code: its sha256, and the full names that it may import."""

    sha256: str
    imports: tuple[str, ...]


class _ModuleFile(NamedTuple):
    """The place of a module: its file, or the first file of the outermost package around it."""

    name: str
    path: Path
    is_package: bool


def encoder_versions() -> dict[str, str | None]:
    """Return the versions of other packages that determine the bytes of encoded records."""
    versions: dict[str, str | None] = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    for package in ("numpy", "pillow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return versions


class CodeReader:
    """Digests code. It reads each file only once, so use a new instance after files may have changed."""

    def __init__(self) -> None:
        self._sources: dict[Path, _CodeFile] = {}
        self._places: dict[tuple[str, Path], _ModuleFile | None] = {}

    def digests(self, code: Any, named: Iterable[Any] = ()) -> dict[str, str] | None:
        """A digest for each file of code that a class or function depends on, and versions of installed packages.

        Files are those of

        - the package that defines the class or function, or a base of the class; without a package, its module;
        - the same for ``named``, other classes and functions;
        - the packages and modules that these files import, in any line, and so on.

        An installed package that defines none of the first counts by its version. The standard library and this
        package are left out unless ``code`` is in them: their versions belong to the key of a build. At most 10,000
        files are read.

        Returns None if a class or function has no file, for example because it was typed into an interpreter.
        """
        path = _file_of(code)
        if path is None:
            return None
        starts: dict[str, Path] = {code.__module__: path}
        result: dict[str, str] = {}
        for is_named, part in _with_bases(code, named):
            name = getattr(part, "__module__", None)
            if not isinstance(name, str) or name.partition(".")[0] in (_OURS, *sys.builtin_module_names):
                continue
            path = _file_of(part)
            if path is None and name == "__main__":
                return None
            if path is None or (is_named and _is_installed(path)):
                result.update(self._versions(name))
            elif not _is_standard(path):
                starts[name] = path
        return self._follow([_place_of_loaded(*start) for start in sorted(starts.items())], result)

    def _follow(self, waiting: list[_ModuleFile], digests: dict[str, str]) -> dict[str, str]:
        """Add the digests of places, and of all that they import, to ``digests``."""
        seen: set[str] = set()
        while waiting and len(digests) < _MOST_SOURCES:
            place = waiting.pop(0)
            if place.name in seen:
                continue
            seen.add(place.name)
            imported: dict[str, Path] = {}
            for name, path in islice(_files_of(place), _MOST_SOURCES - len(digests)):
                source = self._read(name, path)
                digests[name] = source.sha256
                imported.update((module, path.parent) for module in source.imports)
            if place.name.partition(".")[0] == _OURS:
                continue
            for name, folder in sorted(imported.items()):
                top = name.partition(".")[0]
                following = None if top == _OURS or top in seen else self._place_of_imported(name, folder)
                if following is None or _is_standard(following.path):
                    continue
                if _is_installed(following.path):
                    digests.update(self._versions(name) or {name: self._read(name, following.path).sha256})
                else:
                    waiting.append(following)
        return digests

    def _read(self, name: str, path: Path) -> _CodeFile:
        if path not in self._sources:
            try:
                content = path.read_bytes()
            except OSError:  # a broken link or an unreadable file cannot be imported either
                content = b""
            is_followed = path.suffix == ".py" and name.partition(".")[0] != _OURS
            imports = tuple(sorted(set(_imports(name, content)))) if is_followed else ()
            self._sources[path] = _CodeFile(hashlib.sha256(content).hexdigest(), imports)
        return self._sources[path]

    def _place_of_imported(self, name: str, folder: Path) -> _ModuleFile | None:
        if (name, folder) not in self._places:
            self._places[name, folder] = _place_of_imported(name, folder)
        return self._places[name, folder]

    def _versions(self, name: str) -> dict[str, str]:
        """The versions of the installed packages that contain a module."""
        top, result = name.partition(".")[0], {}
        for package in self._packages.get(top, ()):
            with suppress(metadata.PackageNotFoundError):
                result[f"version of {package}"] = metadata.version(package)
        return result

    @cached_property
    def _packages(self) -> dict[str, list[str]]:
        return {name: sorted(set(packages)) for name, packages in metadata.packages_distributions().items()}


def _file_of(code: Any) -> Path | None:
    try:
        path = inspect.getsourcefile(code)
    except (OSError, TypeError):
        return None
    is_file = path is not None and os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises if a parent is unreadable)
    return Path(path) if path is not None and is_file else None


def _with_bases(code: Any, named: Iterable[Any]) -> Iterator[tuple[bool, Any]]:
    """Each class or function and the bases of the class, and whether it comes from ``named``."""
    for place, imported_object in enumerate((code, *named)):
        for base in inspect.getmro(imported_object) if isinstance(imported_object, type) else (imported_object,):
            yield place > 0, base


def _place_of_loaded(name: str, path: Path) -> _ModuleFile:
    """The outermost package with a file that contains a module which is loaded; without one, the module."""
    if name == "__main__":  # `python -m package.module`
        name = getattr(sys.modules[name].__spec__, "name", name)
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        package = ".".join(parts[:count])
        file = getattr(sys.modules.get(package), "__file__", None)
        if file and Path(file).stem == "__init__":
            return _ModuleFile(package, Path(file), is_package=True)
    return _ModuleFile(name, path, is_package=False)


def _place_of_imported(name: str, folder: Path) -> _ModuleFile | None:
    """The same for a name in an import, which is not imported. ``folder`` contains the file that imports it."""
    parts = name.split(".")
    spec = _find_top(parts[0], folder)
    for count in range(1, len(parts) + 1):
        if spec is None:
            return None
        if spec.has_location and spec.origin:
            is_package = spec.submodule_search_locations is not None
            return _ModuleFile(".".join(parts[:count]), Path(spec.origin), is_package)
        if spec.submodule_search_locations is None or count == len(parts):
            return None  # it is built in, or a namespace package, which has no code
        spec = PathFinder.find_spec(".".join(parts[: count + 1]), spec.submodule_search_locations)
    return None


def _find_top(name: str, folder: Path) -> ModuleSpec | None:
    with suppress(ImportError, ValueError, AttributeError):  # the module was made without a spec
        spec = find_spec(name)
        if spec is not None:
            return spec
    return PathFinder.find_spec(name, [str(folder)])


def _files_of(place: _ModuleFile) -> Iterator[tuple[str, Path]]:
    """The full name and the path of each module of a place, in order; ``a.__init__`` is the file of package ``a``."""
    if not place.is_package:
        yield place.name, place.path
        return
    root = place.path.parent
    for folder, folders, names in os.walk(root):
        # Not environments or caches that are inside the folder of a program.
        folders[:] = sorted(child for child in folders if child[:1] != "." and child not in ("__pycache__", *INSTALLED))
        inside = ".".join((place.name, *Path(folder).relative_to(root).parts))
        for name in sorted(names):
            if name.endswith(".py"):
                yield f"{inside}.{name[:-3]}", Path(folder, name)


def _imports(name: str, content: bytes) -> Iterator[str]:
    r"""The full names that the text of a module may import; for ``from a import b``, both ``a`` and ``a.b``.

    >>> list(_imports("a.b", b"import os.path as p, re"))
    ['os.path', 're']
    >>> list(_imports("a.b", b"def f():\n    from .c import d, e as f"))
    ['a.c', 'a.c.d', 'a.c.e']
    """
    for found in _IMPORT.finditer(_COMMENT.sub("", content.decode(errors="replace"))):
        if found["modules"] is not None:
            yield from _first_words(found["modules"])
            continue
        base = found["base"].lstrip(".")
        level = len(found["base"]) - len(base)
        if level:
            around = name.split(".")[:-level]
            base = ".".join((*around, base) if base else around)
        if base:
            yield base
            yield from (f"{base}.{word}" for word in _first_words(found["names"]))


def _first_words(names: str) -> Iterator[str]:
    for one in names.strip(" \t\r\n()").split(","):
        word = one.split()[:1]
        if word and word[0] != "*":
            yield word[0]


@cache
def _standard_folders() -> tuple[str, ...]:
    return tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})


def _is_installed(path: Path) -> bool:
    return not INSTALLED.isdisjoint(path.parts)


def _is_standard(path: Path) -> bool:
    """Whether a file belongs to the standard library."""
    real = os.path.realpath(path)
    return real.startswith(_standard_folders()) and not _is_installed(Path(real))
