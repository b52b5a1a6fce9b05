"""Decides from the text of the author's code whether ``Witness`` notices everything that a builder may read.

Python reports files that it opens. It does not report files that native code opens, queries about a file without
opening it, reads of another process, or reads during the import of a module. This module therefore lists the allowed
names. With any other name, it cannot be proved that the inputs are the same, and the records are made again.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_PACKAGES: Final = frozenset({"numpy", "PIL", "typing_extensions"})  # these packages open files through Python
_OUR_MODULES: Final = ("registry", "registry.features", "registry.building", "registry.model", "registry.errors")
_NATIVE_SUFFIXES: Final = (".so", ".pyd")

# Names of actions that Python does not report, or that hide names: facts about files, processes, native code.
_UNNOTICED: Final = frozenset(
    """
    stat lstat fstat statvfs fstatvfs disk_usage getsize getmtime getctime getatime st_size st_mtime st_mtime_ns
    exists lexists isfile isdir islink ismount is_file is_dir is_symlink is_mount access samefile readlink realpath
    resolve owner group listxattr getxattr filecmp posix nt _io multiprocessing concurrent fork forkpty
    ctypes cffi dbm _dbm _gdbm import_module __import__ exec eval runpy exec_module load_module spec_from_file_location
    globals vars __getattribute__ argv stdin input ImageFont truetype connect Catalog open_store
    """.split()  # noqa: SIM905 (a list literal would have one line for each)
)

# Functions that may be called while a module is imported, unless the author defines them.
_HARMLESS: Final = frozenset(
    """
    dict list tuple set frozenset range len int float str bytes bool sorted reversed zip enumerate min max sum any all
    abs round chr ord repr isinstance object property staticmethod classmethod abstractmethod overload override final
    cast TypeVar NewType NamedTuple namedtuple dataclass field auto unique Path PurePath PurePosixPath compile
    getLogger Decimal Fraction date timedelta defaultdict Counter OrderedDict MappingProxyType dedent partial cache
    lru_cache cached_property contextmanager total_ordering joinpath with_name with_suffix absolute dirname abspath
    getenv get items keys values split strip join lower upper format fromkeys array arange zeros ones dtype
    """.split()  # noqa: SIM905
)
_MAKERS: Final = frozenset({"__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__", "__call__"})


def is_provable(packages: Iterable[str], files: Iterable[Path], folders: Iterable[Path]) -> bool:
    """Return whether audit events report everything that some code may read.

    Args:
        packages: the installed packages that the code imports.
        files: the author's files.
        folders: the author's packages, in which no native code may be.
    """
    if not _PACKAGES.issuperset(packages) or any(map(_has_native_code, folders)):
        return False
    try:
        trees = [ast.parse(path.read_bytes()) for path in files if path.suffix == ".py" or _refuse(path)]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    defined = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
    return all(_is_plain(tree) and _reads_nothing_at_import(tree, defined) for tree in trees)


_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


def _refuse(path: Path) -> bool:
    raise ValueError(f"{path} is not Python code")


def _has_native_code(folder: Path) -> bool:
    return any(name.endswith(_NATIVE_SUFFIXES) for _, _, names in os.walk(folder) for name in names)


def _is_plain(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if not _UNNOTICED.isdisjoint(_names_in(node)):
            return False
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module or "") and not node.level:
            if node.module not in _OUR_MODULES:
                return False
            if node.module == "registry" and not all(_is_builder_name(it.name) for it in node.names):
                return False
        if isinstance(node, ast.Import) and any(_is_ours(it.name) and it.name not in _OUR_MODULES for it in node.names):
            return False
        if isinstance(node, ast.Attribute) and _last_name(node.value) == "registry" and not _is_builder_name(node.attr):
            return False
    return True


def _is_builder_name(name: str) -> bool:
    """Whether a name of this package is a class or a module, and not a function that reads a catalog."""
    return name[:1].isupper() or f"registry.{name}" in _OUR_MODULES


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "registry"


def _names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield from node.name.split(".")
    elif isinstance(node, ast.ImportFrom):
        yield from (node.module or "").split(".")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # getattr(os, "stat")
        yield node.value


def _reads_nothing_at_import(tree: ast.Module, defined: set[str]) -> bool:
    """Whether the statements that run at an import call only what is known to read nothing."""
    ours = {
        it.asname or it.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for it in node.names
        if _is_ours((node.module or "") if isinstance(node, ast.ImportFrom) else it.name)
    }
    plain = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and not any(isinstance(statement, _FUNCTIONS) and statement.name in _MAKERS for statement in node.body)
    }
    allowed = (_HARMLESS | ours | plain) - defined
    for node in _run_at_import(tree):
        called: list[ast.expr] = []
        if isinstance(node, ast.Call):
            called = [node.func]
            passed = [*node.args, *(it.value for it in node.keywords)]
            # A function or method that is passed may be called; values have no such names.
            if any(
                isinstance(argument, ast.Attribute) or _last_name(argument) in defined | {"open"} for argument in passed
            ):
                return False
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            called = [decorator for decorator in node.decorator_list if not isinstance(decorator, ast.Call)]
        for decorator in called:
            if _last_name(decorator) not in allowed and _first_name(decorator) not in ours:
                return False
    return True


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those in the bodies of functions: defaults, decorators and annotations run at once."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, _FUNCTIONS):
            for part in (*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)):
                yield part
                yield from _run_at_import(part)
        else:
            yield from _run_at_import(child)


def _last_name(node: ast.expr) -> str:
    """``c`` of ``a.b.c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _first_name(node: ast.expr) -> str:
    """``a`` of ``a.b.c``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
