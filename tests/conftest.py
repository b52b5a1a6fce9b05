"""Databases for tests: ``catalog_url`` runs a test twice, on a fresh SQLite catalog and on a fresh PostgreSQL one.

PostgreSQL is a real server (``catalog_server.py``), one for each test process. It starts when a test first needs it,
and is never skipped: if it cannot start, the test fails with the server's log.

``bucket`` is a fresh bucket of an S3 server on this machine (``s3_server.py``); with ``@on_clouds`` a test also runs on
a Google server and, in ``.ci/beside azure``, on an Azure server (``clouds.py``). With ``fault_proxy``, every request to
it passes through a proxy that counts requests and injects faults (``fault_proxy.py``).
"""

from __future__ import annotations

import compileall
import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from support.azure_server import AzureServer
from support.catalog_server import PostgresServer
from support.clouds import Cloud, enter
from support.fault_proxy import FaultProxy
from support.gcs_server import GcsServer
from support.kept_columns import read_from_columns
from support.levels import EXAMPLES, in_share, is_quick, may_hold_quick_tests, sample
from support.process_memory import shared_by_tests
from support.s3_server import S3Server
from support.warm_python import skip_syncs, warm_workers

import registry

if os.environ.get("REGISTRY_TEST_KEEP"):
    read_from_columns(os.environ["REGISTRY_TEST_KEEP"])

pytest.register_assert_rewrite("support.engine_laws")  # tests that several files import

# No test measures time, because cores are shared and noisy. On CI, the examples are the same on every run. levels.py
# sets the number of examples of a law; REGISTRY_EXAMPLES=1000 attacks it for longer.
settings.register_profile(
    "registry",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    max_examples=EXAMPLES,
)
settings.load_profile("registry")
settings.register_profile("quick", settings.get_profile("registry"), max_examples=min(3, EXAMPLES))
# To find out whether a law fails, but not for which example: shrinking an example takes up to five minutes.
settings.register_profile(
    "unshrunk", settings.get_profile("registry"), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)

# A shell starts programs in the background with Ctrl-C ignored, and the programs that tests start would inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A program that a test starts may keep its compiled modules, whatever the caller's environment says: without them each
# of some thousand programs compiles the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(optionalhook=True)  # the environments of the frameworks have no pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto`` starts a process per core; each collects all tests for half a minute and has its own servers."""
    return num_cores()


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give each process neighbouring tests, which share the fixtures of their files. Idle processes take over some."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.hookimpl(tryfirst=True)  # the cleanup that is added first runs last
def pytest_configure(config: pytest.Config) -> None:
    """Set the few examples of the quick level. A process that xdist started ends at once after its report.

    Otherwise, it would spend 7 s on freeing its objects, and wait 10 s for threads that tests left hanging.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        config.add_cleanup(lambda: os._exit(0))
    if config.option.markexpr == "quick":
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick level does not import the files of the other levels, nor the everyday level those of ``beside``."""
    expression = config.option.markexpr
    if expression == "quick" and not may_hold_quick_tests(collection_path, config.rootpath):
        return True
    if "not chromium" in expression and collection_path == config.rootpath / "tests" / "beside":
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Iterator[None]:
    """Tests have no doctests; the doctests are in ``registry/`` and ``builders/``."""
    found = yield
    return [one for one in found if type(one) is pytest.Module]


@pytest.hookimpl(tryfirst=True)  # before the processes start
def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the modules of a fresh clone once, on all cores.

    All processes collect all tests: without this, each of them would compile every file and every package it imports.
    """
    config = session.config
    if not getattr(config.option, "numprocesses", 0) or config.args_source.name != "TESTPATHS":
        return
    paths = [path for path in Path(__file__).parent.rglob("test_*.py") if not pytest_ignore_collect(path, config)]
    if any((path.parent / "__pycache__").is_dir() for path in paths):
        return
    children = []
    for first in range(num_cores()):
        child = os.fork()
        if not child:
            for path in sorted(paths)[first :: num_cores()]:
                with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection itself reports the error
                    pytest.Module.from_parent(session, path=path).obj  # noqa: B018 (imports the file)
            for path in sorted(Path(registry.__file__).parent.rglob("*.py"))[first :: num_cores()]:
                compileall.compile_file(path, quiet=2)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def pytest_collection() -> None:
    """Collect tests without garbage collection, because all collected objects stay alive."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the quick and of the long level, and leave out those outside ``REGISTRY_LONG_SHARE``."""
    sample(items)
    items[:] = [item for item in items if in_share(item)]
    for item in items:
        if is_quick(item):
            item.add_marker(pytest.mark.quick)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Leave bytes out of the names of tests: compressed bytes contain the time, and processes must see equal names."""
    return argname if isinstance(val, bytes | bytearray) and len(val) > 16 else None


def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collection, because each full collection would walk all of them."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # tests that need a collection call it


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the counts of tests (``record_property``), such as the number of equal vectors, in every run."""
    counted = [
        pair
        for kind in ("passed", "failed")
        for one in terminalreporter.getreports(kind)
        for pair in one.user_properties
    ]
    if counted:
        terminalreporter.section("counted")
        for name, value in counted:
            terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session", autouse=True)
def _few_tries() -> Iterator[None]:
    """Give up soon on a store that is broken on purpose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGISTRY_TRIES", "3")
        patch.setenv("REGISTRY_PUBLISH_TIMEOUT", "0")  # tests of outages set another value
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the indexes of tests apart from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGISTRY_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("REGISTRY_CACHE_BYTES", "0")  # because tests count the requests to stores
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_catalogs() -> Iterator[None]:
    """Compile statements only once, and do not wait for the disk."""
    skip_syncs()
    with shared_by_tests(), warm_workers():
        yield


@pytest.fixture(scope="session", autouse=True)
def _packages_once() -> Iterator[None]:
    """List the installed packages once per search path, because each build of a class would take 0.6 s for it here."""
    look = metadata.packages_distributions
    look_once = cache(lambda _path: look())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "packages_distributions", lambda: look_once(tuple(sys.path)))
        yield


@pytest.fixture
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMPDIR of the test alone: ``registry gc`` also lists what ended programs of other tests left there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[registry.Catalog]:
    """A catalog without datasets in a file; its data is stored in ``data`` next to it."""
    with registry.connect(tmp_path / "catalog.db", data_dir=tmp_path / "data", create=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL for this test process, with the database ``catalog_template``: a catalog without datasets."""
    from registry.catalog import schema

    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has at most 107 bytes
    try:
        server = PostgresServer(folder)
        server.start()
        try:
            server.execute("CREATE DATABASE catalog_template")
            schema.upgrade(server.url("catalog_template"))
            yield server
        finally:
            server.stop()
    finally:
        # Removing hundreds of databases of three hundred files each takes half a minute, so do not wait for it.
        os.posix_spawnp("rm", ["rm", "-rf", str(folder)], os.environ)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an SQLite catalog without datasets."""
    from registry.catalog import schema

    path = tmp_path_factory.mktemp("template") / "catalog.db"
    schema.upgrade(path)
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a catalog without datasets, once for each kind of database."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.take_catalog()
        yield url
        server.give_back(url)
        return
    template: Path = request.getfixturevalue("sqlite_template")
    yield f"sqlite:///{shutil.copy(template, tmp_path / 'catalog.db')}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without any table, once for each kind; the SQLite file does not exist yet."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return server.create_database()
    return f"sqlite:///{tmp_path / 'catalog.db'}"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server for this test process, started when a test first needs it."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server(s3_server: S3Server) -> Iterator[GcsServer]:
    """A Google Cloud Storage server for this test process, which keeps its objects in the S3 server."""
    with GcsServer(s3_server) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """An Azure Blob Storage server for this test process."""
    with AzureServer() as server:
        yield server


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> Cloud:
    """The server of ``bucket``: an S3 server, or a server of each kind in tests ``on_clouds``."""
    return request.getfixturevalue(getattr(request, "param", "s3_server"))  # type: ignore[no-any-return]


@pytest.fixture
def bucket(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a fresh bucket, such as ``s3://name``; its endpoint and credentials are in the environment."""
    return enter(cloud, monkeypatch)


@pytest.fixture
def fault_proxy(cloud: Cloud, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy in front of ``bucket``. Requests to a silent server time out and are retried soon."""
    monkeypatch.setattr("registry.storage.network._FIRST_PAUSE_SECONDS", 0.01)
    with FaultProxy(cloud.port) as proxy:
        for name, value in cloud.environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("REGISTRY_READ_TIMEOUT", "1")
        yield proxy
