"""Write docs/api/*.md, the reference of the Python API, from the docstrings, or check that it is fresh.

python .ci/api_reference.py [--check]

Source files are parsed, not run, so that the page of ``registry.torch`` does not need torch. Only the places of the
names are looked up by importing ``registry``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import registry

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "api"
WIDTH: Final = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Page:
    """One subject: ``names`` are names of ``registry``, or ``module:name`` for what its calls return."""

    title: str
    about: str
    names: tuple[str, ...]


def _all(module: str) -> tuple[str, ...]:
    return tuple(f"{module}:{name}" for name in sorted(importlib.import_module(module).__all__))


PAGES: Final = {
    "catalog": Page(
        "Catalogs and datasets",
        "Open a catalog, look up a version, compare versions, change their lifecycle, import and publish.",
        (
            *("connect", "Catalog", "registry.api.lifecycle:Lifecycle", "registry.api.lifecycle:Aliases"),
            *("registry.api.lifecycle:Experiments", "registry.api.lifecycle:Reservations"),
            *("registry.api.mirrors:Mirrors", "registry.api.mirrors:Location", "registry.api.reports:LocationReport"),
            *("registry.api.reports:RelocationReport", "registry.api.reports:RelocatedVersion"),
            *(
                "registry.api.pinning:CatalogPins",
                "Dataset",
                "DatasetLike",
                "registry.api.info:DatasetInfo",
                "Progress",
                "registry.model.progress:TaskProgress",
            ),
            *("add", "AddReport", "registry.api.adding:Addition"),
            *("registry.api.reports:ImportReport", "registry.api.reports:ImportedVersion"),
            *("registry.api.exporting:ExportReport", "registry.api.exporting:ExportedFile"),
            *("registry.api.reports:CatalogReport", "registry.api.reports:VerifiedVersion"),
            *("registry.api.reports:CopyReport", "registry.api.reports:CopiedVersion"),
            *("cache", "registry.api.caching:Cache", "registry.storage.cache:CacheUsage"),
            "registry.api.caching:FetchReport",
            *("restore", "registry.api.backups:Backup", "registry.api.backups:Restoration"),
            *("use_engine", "registry.engines.ray_tasks:RayTasks", "registry.engines.ray_settings:RaySettings"),
            *("registry.api.usage:Usage", "registry.api.usage:VersionUsage", "registry.api.usage:StoredUsage"),
            *("registry.api.usage:Total", "registry.api.reports:GarbageReport", "registry.api.reports:Collected"),
            *("Reference", "Version", "VersionRequest", "VersionStatus", "DatasetVersion", "Split", "SlicingRule"),
        ),
    ),
    "reading": Page(
        "Reading",
        "Read examples one by one, in batches, by index or into a framework; choose and resume the order.",
        (
            *("load", "builder", "as_dataframe", "Reader", "registry.reading:SupervisedReader"),
            *("registry.reading:Batches", "ReadConfig", "locked", "is_locked"),
        ),
    ),
    "torch": Page(
        "PyTorch",
        "Names of `registry.torch`, which imports torch. `Reader.to_torch` gives the datasets.",
        (
            *("registry.reading.frameworks.torch_batches:collate", "registry.reading.frameworks.torch_batches:Padded"),
            *("registry.reading.frameworks.torch_batches:Collate", "registry.reading.frameworks.torch:ReaderDataset"),
            "registry.reading.frameworks.torch:ReaderIterable",
        ),
    ),
    "splits": Page(
        "Splits and slices",
        "Parse, resolve, explain and compare split expressions such as `train[:80%]`; cut splits into parts and folds.",
        (
            *("ReadInstruction", "resolve", "explain", "relation", "even_splits", "k_fold", "split_for_process"),
            *("Plan", "FileInstruction", "RecordRange", "Explanation", "Relation"),
        ),
    ),
    "pins": Page(
        "Pins", "Record exactly which records a result used, and prove it later.", ("load_pin", "PinFile", "Pin")
    ),
    "building": Page(
        "Building datasets",
        "Write a builder: a class whose examples `Catalog.build` encodes, shards and publishes.",
        ("DatasetBuilder", "BuilderConfig", "Pieces"),
    ),
    "features": Page("Features", "The schema of an example: names of `registry.features`.", _all("registry.features")),
    "slim": Page("TF-Slim", "TF-Slim's data layer on top of readers: names of `registry.slim`.", _all("registry.slim")),
    "errors": Page(
        "Errors and warnings",
        "Every exception derives from `RegistryError` and from the builtin exception that a caller expects. "
        "An argument of a wrong type raises `UsageError`, mostly as `WrongTypeError`, also where `Raises` does not "
        "list it.",
        (),
    ),
}
ELSEWHERE: Final = {
    "RegistryError",
    "RegistryWarning",
    "YankedVersionWarning",
    "slim",
    "torch",
}  # on pages of their own


@dataclass(frozen=True)
class Found:
    """A public name in the source."""

    name: str
    node: ast.AST
    cls: type | None = None
    doc: str = ""


@cache
def tree_of(module: str) -> ast.Module:
    """The parsed source of a module."""
    path = ROOT / Path(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    return ast.parse(file.read_text(encoding="utf-8"))


def find(target: str) -> Found:
    """The definition of a name of ``registry``, or of ``module:name``."""
    module, _, name = target.rpartition(":")
    if "frameworks.torch" in module:  # not importable without torch
        return _in_module(module, name, None)
    value = getattr(importlib.import_module(module or "registry"), name)
    home = value.__module__ if inspect.isclass(value) or inspect.isfunction(value) else ""
    if not home.startswith("registry"):  # an alias of a type: its module is where the lazy exports found it
        home = next(one for one in sorted(sys.modules) if one.startswith("registry.") and _assigns(one, name))
    return _in_module(home, name, value if inspect.isclass(value) else None)


def _assigns(module: str, name: str) -> bool:
    try:
        return any(isinstance(one, ast.AnnAssign) and _is_name(one.target, name) for one in tree_of(module).body)
    except FileNotFoundError:  # installed from builders/ or migrations/
        return False


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _in_module(module: str, name: str, cls: type | None) -> Found:
    body = tree_of(module).body
    for index, node in enumerate(body):
        if isinstance(node, Function) and _is_overload(node):
            continue
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return Found(name, node, cls, ast.get_docstring(node) or "")
        if isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_name(one, name) for one in targets):
                after = body[index + 1] if index + 1 < len(body) else None
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                doc = inspect.cleandoc(str(after.value.value)) if is_text else ""  # type: ignore[union-attr] # is_text says so
                return Found(name, node, None, doc)
    raise LookupError(f"{name} is not defined in {module}")


def members(found: Found) -> Iterator[Function]:
    """The public methods and properties of a class and of its bases in the registry, each name once.

    A method that overrides one of a public base is described there.
    """
    node = found.node
    assert isinstance(node, ast.ClassDef)  # noqa: S101 (a script)
    bases = [one for one in (found.cls.__mro__[1:] if found.cls else ()) if one.__module__.startswith("registry")]
    public = [one for one in bases if not one.__name__.startswith("_")]
    inherited = {name for one in public for name in vars(one) if not _is_mixin(one)}
    yield from (one for one in _own(node) if one.name not in inherited)
    for one in bases:
        if _is_mixin(one):
            yield from _own(_in_module(one.__module__, one.__name__, one).node)


def _is_mixin(cls: type) -> bool:
    """Whether the methods of a base are shown with its one subclass: it is not a public name itself."""
    return cls.__name__ in ("Publishing", "_Report", "ExampleReader", "SlicedVersion")


def _own(node: ast.AST) -> Iterator[Function]:
    assert isinstance(node, ast.ClassDef)  # noqa: S101 (a script)
    for one in node.body:
        if isinstance(one, Function) and not one.name.startswith("_") and not _is_overload(one):
            yield one


def _is_overload(node: Function) -> bool:
    return any(_is_name(one, "overload") for one in node.decorator_list)


def is_property(node: Function) -> bool:
    """Whether a function is read as an attribute."""
    return any(_is_name(one, word) for one in node.decorator_list for word in ("property", "cached_property"))


def signature(node: Function, name: str) -> str:
    """``name(parameters) -> result``, on one line or with a line for each parameter."""
    parts = [one for one in _parameters(node.args) if one not in ("self", "cls")]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    whole = f"{name}({', '.join(parts)}){returns}"
    if len(whole) <= WIDTH:
        return whole
    return f"{name}(\n" + "".join(f"    {one},\n" for one in parts) + f"){returns}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """``name: type = default`` for each parameter, with ``/``, ``*`` and the variadic ones in place."""
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for index, (one, default) in enumerate(zip(positional, defaults, strict=True), 1):
        yield _parameter(one, default)
        if index == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield f"*{_parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, value)
    if arguments.kwarg is not None:
        yield f"**{_parameter(arguments.kwarg, None)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    text = one.arg if one.annotation is None else f"{one.arg}: {ast.unparse(one.annotation)}"
    if default is None:
        return text
    return f"{text}{'=' if one.annotation is None else ' = '}{ast.unparse(default)}"


_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Example|Examples):\s*")
_ITEM = re.compile(r"(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): ?(.*)", re.DOTALL)


def markdown(doc: str) -> str:
    """A docstring as Markdown: sections as bold words, items as lists, examples as code."""
    lines, out, index = doc.splitlines(), [], 0
    while index < len(lines):
        section = _SECTION.fullmatch(lines[index])
        if section is not None:
            stop = index + 1
            while stop < len(lines) and (not lines[stop] or lines[stop].startswith(" ")):
                stop += 1
            body = textwrap.dedent("\n".join(lines[index + 1 : stop])).strip()
            out += ["", f"**{section[1]}**", "", _section(section[1], body), ""]
            index = stop
        elif lines[index].startswith((">>>", "    ")):
            stop = index
            while stop < len(lines) and (lines[stop].strip() or _continues(lines, stop)):
                stop += 1
            out += ["", _code("\n".join(lines[index:stop])), ""]
            index = stop
        else:
            out.append(_inline(lines[index]))
            index += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def _continues(lines: list[str], index: int) -> bool:
    """Whether an empty line is inside an indented example."""
    return index + 1 < len(lines) and lines[index + 1].startswith("    ")


def _code(text: str) -> str:
    return f"```{'pycon' if '>>>' in text else 'python'}\n{textwrap.dedent(text).rstrip()}\n```"


def _section(kind: str, body: str) -> str:
    if kind.startswith("Example"):
        return _code(body)
    items: list[str] = []
    if kind in ("Returns", "Yields"):
        return " ".join(_inline(line.strip()) for line in body.splitlines())
    for line in body.splitlines():
        if line and not line.startswith(" "):
            items.append(line)
        elif line:
            items[-1] += f" {line.strip()}"
    return "\n".join(f"- {_item(one)}" for one in items)


def _item(text: str) -> str:
    match = _ITEM.fullmatch(text)
    if match is None:
        return _inline(text)
    names = ", ".join(f"`{one}`" for one in match[1].split(", "))
    return f"{names}: {_inline(match[2])}"


def _inline(text: str) -> str:
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def entry(target: str) -> Iterator[str]:
    """One public name: heading, signature, docstring, and the members of a class."""
    found = find(target)
    node = found.node
    yield f"## {_heading(found)}"
    if isinstance(node, Function):
        yield f"```python\n{signature(node, found.name)}\n```"
        yield markdown(found.doc)
        return
    if not isinstance(node, ast.ClassDef):
        yield f"```python\n{ast.unparse(node)}\n```"
        yield markdown(found.doc)
        return
    constructor = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
    if constructor is not None and not all(one.arg.startswith("_") for one in constructor.args.args[1:]):
        yield f"```python\n{signature(constructor, found.name).removesuffix(' -> None')}\n```"
    elif fields := [ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign) and _is_public(one)]:
        yield "```python\n" + f"class {found.name}:\n" + "".join(f"    {one}\n" for one in fields) + "```"
    yield markdown(found.doc)
    own = list(members(found))
    values = [_inline(one) for one in _properties(own)]
    if values:
        yield "**Properties**"
        yield "\n".join(values)
    for one in own:
        if not is_property(one):
            yield f"### {found.name}.{one.name}"
            yield f"```python\n{signature(one, f'{found.name}.{one.name}')}\n```"
            yield markdown(ast.get_docstring(one) or "")


def _heading(found: Found) -> str:
    """Classes say so: ``relation`` and ``Relation`` need anchors that differ by more than the case."""
    return f"class {found.name}" if isinstance(found.node, ast.ClassDef) else found.name


def _anchor(target: str) -> str:
    return _heading(find(target)).lower().replace(" ", "-")


def _is_public(node: ast.AnnAssign) -> bool:
    return isinstance(node.target, ast.Name) and not node.target.id.startswith("_")


def _properties(own: list[Function]) -> Iterator[str]:
    for one in own:
        if is_property(one):
            kind = f" (`{ast.unparse(one.returns)}`)" if one.returns is not None else ""
            summary = " ".join((ast.get_docstring(one) or "").partition("\n\n")[0].split())
            yield f"- `{one.name}`{kind}: {summary}"


def error_page() -> Iterator[str]:
    """The tree of ``registry.errors``, and a table of every class."""
    from registry import errors

    head, _, rest = (errors.__doc__ or "").partition("\n\n")
    drawn, _, fields = rest.partition("\n\n")
    yield _inline(head)
    yield f"```text\n{textwrap.dedent(drawn)}\n```"
    yield _inline(" ".join(fields.split()))
    for base, columns in ((errors.RegistryError, ("code", "exit_code")), (errors.RegistryWarning, ())):
        table = ["| class | " + "".join(f"{one.replace('_', ' ')} | " for one in columns) + "meaning |"]
        table.append("|---|" + "---|" * len(columns) + "---|")
        for node in tree_of("registry.errors").body:
            cls = getattr(errors, node.name) if isinstance(node, ast.ClassDef) else None
            if cls is not None and issubclass(cls, base):
                summary = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split()).replace("|", "\\|")
                values = "".join(f"`{getattr(cls, one)}` | " for one in columns)
                table.append(f"| `{cls.__name__}` | {values}{_inline(summary)} |")
        yield f"## {base.__name__}"
        yield markdown(inspect.getdoc(base) or "")
        yield "\n".join(table)


_MADE = "<!-- Written by .ci/api_reference.py from the docstrings. Do not edit. -->"


def pages() -> dict[Path, str]:
    """The text of every page."""
    made = {}
    index = [_MADE, "# Python API", _inline(_stability())]
    listed = {name for page in PAGES.values() for name in page.names if ":" not in name}
    if missing := set(registry.__all__) - listed - ELSEWHERE:
        raise LookupError(f"PAGES does not show: {', '.join(sorted(missing))}")
    for name, page in PAGES.items():
        shown = {one.rpartition(":")[2]: _anchor(one) for one in page.names}
        links = ", ".join(f"[`{one}`]({name}.md#{anchor})" for one, anchor in shown.items())
        index += [f"## [{page.title}]({name}.md)", page.about, *([links] if links else [])]
        body = error_page() if name == "errors" else (part for one in page.names for part in entry(one))
        contents = " · ".join(f"[{one}](#{anchor})" for one, anchor in shown.items())
        parts = [_MADE, f"# {page.title}", page.about, contents, *body]
        made[FOLDER / f"{name}.md"] = "\n\n".join(filter(None, parts)) + "\n"
    made[FOLDER / "index.md"] = "\n\n".join(index) + "\n"
    return made


def _stability() -> str:
    """The paragraph of the package's docstring on which names are stable."""
    paragraphs = (registry.__doc__ or "").split("\n\n")
    return next(one for one in (" ".join(one.split()) for one in paragraphs) if "semantic versioning" in one)


def main() -> int:
    """Write or check; the exit code."""
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += [path for path in FOLDER.glob("*.md") if path not in made]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run python .ci/api_reference.py", file=sys.stderr)  # noqa: T201 (a script)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for path in stale:
        if path in made:
            path.write_text(made[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
