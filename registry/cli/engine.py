"""The options that choose the engine of a command, ``--engine`` and its settings, and the note that names it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from registry.cli.output import Output
from registry.environment import read_variable
from registry.errors import UsageError
from registry.masking import mask

_ENVIRONMENT_HINT: Final = (
    'Write JSON, e.g. --runtime-env \'{"py_modules": ["./my_package"]}\', or the path of a .json or .yaml file.'
)
_SIZES: Final = ("task_memory", "object_store_memory")
_MOST_NAMES: Final = 3

ENGINE_OPTIONS: Final = (
    click.option(
        "--object-store-memory",
        metavar="SIZE",
        help="With --engine ray: keep at most this much of a run in Ray's object store, e.g. 2GB.  [default: 2N+1 "
        "inputs and results for N tasks]",
    ),
    click.option(
        "--task-memory",
        metavar="SIZE",
        help="With --engine ray: the memory of one task, e.g. 2GB; a node runs as many tasks as fit.  [default: one "
        "task for each CPU]",
    ),
    click.option(
        "--runtime-env",
        metavar="FILE|JSON",
        help="With --engine ray: what Ray sends to the workers, such as the package of a builder: "
        '\'{"py_modules": ["./my_package"]}\'. Ray logs it, so leave out passwords.',
    ),
    click.option(
        "--address",
        metavar="HOST:PORT",
        help="With --engine ray: the cluster.  [default: $RAY_ADDRESS, else one on this machine, else a new one]",
    ),
    click.option(
        "--engine",
        metavar="NAME",
        help="Where heavy work is done: local is this machine, ray is a Ray cluster.  [default: $REGISTRY_ENGINE, else "
        "local]",
    ),
)
"""The options, in reverse: help lists the last one first."""


@contextmanager
def chosen_engine(out: Output, doing: str, arguments: dict[str, Any]) -> Iterator[None]:
    """Use the engine that the options name in the block, and print a note that says what runs where.

    The options are removed from ``arguments``.

    Raises:
        UsageError: the engine is unknown, or does not have the setting; a setting is malformed; or no cluster was
            found.
        MissingExtraError: Ray is not installed.
    """
    name = arguments.pop("engine") or read_variable("REGISTRY_ENGINE") or "local"
    settings = {option: arguments.pop(option) for option in ("address", "runtime_env", *_SIZES)}
    given = {option: value for option, value in settings.items() if value is not None}
    if name == "local" and not given:
        yield
        return
    from registry.engines import announced, use_engine

    with (
        use_engine(name, **{option: _read(option, value) for option, value in given.items()}),
        announced(f"{doing} {_subject(arguments)}", tell=lambda line: out.note(f"note: {line}")),
    ):
        yield


def _read(name: str, value: str) -> Any:
    """The value of a setting."""
    if name in _SIZES:
        from registry.storage.cache import parse_bytes

        option = f"--{name.replace('_', '-')}"
        return parse_bytes(value, option, hint=f"Write the number alone or with a unit, e.g. {option} 2GB or 512MiB.")
    return read_environment(value) if name == "runtime_env" else value


def read_environment(text: str) -> Mapping[str, Any]:
    """Read a runtime environment: JSON, or the path of a JSON or YAML file.

    >>> read_environment('{"pip": ["tqdm"]}')
    {'pip': ['tqdm']}

    Raises:
        UsageError: the file cannot be read, or the text is not JSON or YAML, or not an object.
    """
    if text.lstrip().startswith("{"):
        place, content, is_yaml = "--runtime-env", text, False
    else:
        from registry.storage import expand_home, read_file

        path = expand_home(text)
        place, is_yaml = f"--runtime-env: {text}", path.suffix in (".yaml", ".yml")
        if not is_yaml and path.suffix != ".json":
            raise UsageError(f"{place} is neither JSON nor a .json or .yaml file", hint=_ENVIRONMENT_HINT)
        try:
            content = read_file(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{place} cannot be read: {reason}", hint=_ENVIRONMENT_HINT) from error
    result = _parse_yaml(place, content) if is_yaml else _parse_json(place, content)
    if not isinstance(result, dict) or not all(isinstance(key, str) for key in result):
        raise UsageError(
            f"{place} must contain an object with names, not {type(result).__name__}", hint=_ENVIRONMENT_HINT
        )
    return result


def _parse_json(place: str, content: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON: {error}", hint=_ENVIRONMENT_HINT) from error


def _parse_yaml(place: str, content: str) -> Any:
    import yaml  # slow to import, and rarely needed

    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{place} is not YAML: {reason}", hint=_ENVIRONMENT_HINT) from error


def _subject(arguments: Mapping[str, Any]) -> str:
    """The subject of the command: the value of its first argument."""
    parameters = click.get_current_context().command.params
    first = next((parameter.name for parameter in parameters if isinstance(parameter, click.Argument)), None)
    value = arguments.get(first or "")
    names = [value] if isinstance(value, str) else list(value or ())
    if not names:
        return "every version"
    return ", ".join(map(mask, names[:_MOST_NAMES])) + (" ..." if len(names) > _MOST_NAMES else "")
