"""The three levels of the suite: the cases of each level, and the number of examples of a law.

- **quick** (``pytest -m quick``): tests without a database server, an object store, a process or a long loop.
- **everyday** (the README's line): every law, on a sample of its cases and with few examples.
- **long** (``make long``): the other cases, and every law again with more examples. ``.ci/run`` runs the everyday level
  first, and then a tenth of this one.

A law is never in the long level alone: ``cases`` and ``either`` always leave some cases for every day.
"""

import os
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from support.sampled import EVERYDAY_CASES

EXAMPLES: Final = int(os.environ.get("REGISTRY_EXAMPLES", "6"))
"""Number of examples that hypothesis tries for a law that asks for no number of its own."""

LONG_SHARE: Final = int(os.environ.get("REGISTRY_LONG_SHARE", "1"))
"""With 6, a sixth of the selected tests runs. Their names decide which, so each run has the same ones."""

_USUAL: Final = 40


def examples(number: int) -> int:
    """The number of examples of a law: ``number`` in the long level, fewer every day, but at least 5."""
    return max(5, number * EXAMPLES // _USUAL)


def cases(values: Iterable[object], *, everyday: int) -> list[object]:
    """Parameters for ``parametrize``: ``everyday`` of them, evenly spaced up to the last; the others are long."""
    every = list(values)
    kept = {round((number + 1) * len(every) / everyday) - 1 for number in range(everyday)}
    return [one if place in kept else _long(one) for place, one in enumerate(every)]


def either(everyday: object, long: object) -> list[object]:
    """Parameters for ``parametrize``: a size for every day, and a larger one for the long level."""
    return [everyday, _long(long)]


def every_step(step: int) -> int:
    """The interval of the steps at which a test kills: ``step``, or ``REGISTRY_EVERY_STEP``, as in ``make kills``."""
    return int(os.environ.get("REGISTRY_EVERY_STEP", step))


def sample(items: Sequence[pytest.Item]) -> None:
    """Mark as long all but a few cases of each test that ``sampled.py`` lists, and some repetitions on databases.

    Which ones are kept depends on the test's name, so that together the tests of a file still meet every database and
    every kind of damage.
    """
    items = [item for item in items if not item.get_closest_marker("azure")]  # they run beside azurite, all of them
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", None)
        if name in EVERYDAY_CASES and not item.get_closest_marker("long"):
            found.setdefault(f"{item.path}::{name}", []).append(item)
    _alternate(items)
    _thin(items)
    for place, those in found.items():
        _keep(those, EVERYDAY_CASES[place.rpartition("::")[2]], place)


def in_share(item: pytest.Item) -> bool:
    """Whether a test runs with ``LONG_SHARE``."""
    return zlib.crc32(item.nodeid.encode()) % LONG_SHARE == 0


def _alternate(items: Sequence[pytest.Item]) -> None:
    """Run each case of a test on one database every day: the cases and the tests take turns."""
    found: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        params = dict(getattr(getattr(item, "callspec", None), "params", {}))
        if params.pop("catalog_url", None) is not None and not item.get_closest_marker("long"):
            name = f"{item.path}::{getattr(item, 'originalname', '')}"
            found.setdefault(name, {}).setdefault(repr(params), []).append(item)
    for name, of_a_test in found.items():
        first = zlib.crc32(name.rpartition("/")[2].encode())
        for number, on_databases in enumerate(of_a_test.values(), first):
            for place, item in enumerate(on_databases):
                if place != number % len(on_databases):
                    item.add_marker(pytest.mark.long)


def _thin(items: Sequence[pytest.Item]) -> None:
    """Keep a sixth of the cases of each test in the slow folders, and at least one."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = getattr(item, "originalname", None)
        if name is None or name in EVERYDAY_CASES or item.get_closest_marker("long"):
            continue
        if tuple(_place(item.path, item.config.rootpath).split("/")[:2]) in SLOW_FOLDERS:
            found.setdefault(f"{item.path}::{name}", []).append(item)
    for place, those in found.items():
        _keep(those, max(1, len(those) // 6), place)


def _keep(those: Sequence[pytest.Item], number: int, place: str) -> None:
    """Mark as long all but ``number`` of the cases of the test at ``place``, evenly spaced."""
    first, number = zlib.crc32(place.rpartition("/")[2].encode()), min(number, len(those))
    chosen = {(first + step * len(those) // number) % len(those) for step in range(number)}
    for position, item in enumerate(those):
        if position not in chosen:
            item.add_marker(pytest.mark.long)


def _long(value: object) -> object:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.long)


SLOW_FOLDERS: Final = {
    ("tests", name) for name in ("catalog", "cli", "end_to_end", "engines", "pages", "ray", "server", "storage")
}
"""Folders whose tests start servers or programs, or publish: a case takes a tenth of a second or more."""

QUICK_FOLDERS: Final = ("tests/unit", "tests/property", "tests/conformance", "registry", "builders")
"""Where quick tests are; with ``-m quick`` pytest imports no other test file."""

SERVERS: Final = {"postgres_server", "s3_server", "catalog_url", "database_url", "bucket"}
"""Fixtures that start a server: a test that requests one is not quick."""

THOROUGH: Final = {
    "test_array_record_isolated",  # processes
    "test_backup_laws",  # publishes
    "test_block_laws",
    "test_croissant_laws",
    "test_damaged_sources",  # every format, cut at many places
    "test_distribution",  # parses the whole package
    "test_earth_engine_assemble",
    "test_earth_engine_exporting",  # full disks and kills
    "test_earth_engine_geotiff",  # processes and full disks
    "test_earth_engine_replacing",  # processes that are killed
    "test_frozen",  # a PostgreSQL dump
    "test_import_circles",  # parses the whole package
    "test_import_cost",  # processes
    "test_intake_freed_memory",  # a process
    "test_intake_listing",  # a web server
    "test_library_types",  # every type of five libraries
    "test_media_laws",  # publishes
    "test_mirror_laws",  # publishes
    "test_mutated_files",  # processes
    "test_order_permutation",  # statistics
    "test_parquet_bombs",  # processes with little memory
    "test_parquet_footer",  # processes
    "test_parquet_import",
    "test_pin_bombs",  # processes with little memory
    "test_pin_digest_laws",
    "test_pin_signature",
    "test_prepared_info",
    "test_proof_laws",
    "test_reader",
    "test_shard_faults",  # every flipped bit
    "test_shard_formats",
    "test_slim_image_laws",
    "test_slim_parallel_reader",  # threads that wait for each other
    "test_slim_prefetching",  # the same
    "test_slim_provider_life",  # the same
    "test_splits_grammar",  # texts of a megabyte
    "test_stamps",  # waits for the clock of the file system
    "test_tfrecord_faults",  # every flipped bit
    "test_tfrecord_files",
    "test_tfrecord_forward",
}
"""Files of the quick folders that take too long for the quick level."""


def is_quick(item: pytest.Item) -> bool:
    """Whether a test belongs to the quick level."""
    if item.get_closest_marker("long") or SERVERS & set(getattr(item, "fixturenames", ())):
        return False
    return item.path.stem not in THOROUGH and _is_below(item.path, item.config.rootpath)


@cache
def _place(path: Path, root: Path) -> str:
    """The path below ``root``: thousands of tests have the path of their file."""
    return path.relative_to(root).as_posix()


def _is_below(path: Path, root: Path) -> bool:
    relative = _place(path, root)
    return any(relative == folder or relative.startswith(f"{folder}/") for folder in QUICK_FOLDERS)


def may_hold_quick_tests(path: Path, root: Path) -> bool:
    """Whether ``-m quick`` has to collect a file or folder."""
    if path.is_dir():
        relative = path.relative_to(root).as_posix()
        return relative == "tests" or _is_below(path, root)
    return path.stem not in THOROUGH and _is_below(path, root)
