"""No text that should name a path, a URL or a dataset gets its password into a message, wherever it is passed."""

from __future__ import annotations

import io
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_catalog_url_laws import HALVES, everything_of, shown

import registry
from registry.cli.main import cli, run
from registry.errors import RegistryError
from registry.storage import open_store

SCHEMES = ["s3://", "s3a://", "gs://", "az://", "http://", "https://", "ftp://", "hf://", "file://", "postgresql://"]
SCHEMES += ["memory://", "webdav://", "http:/", "https//", ""]
FORMS = [f"{scheme}ann:{{}}@127.0.0.1:1/x.csv" for scheme in SCHEMES]
FORMS += [f"{scheme}127.0.0.1:1/x.csv?{name}={{}}" for scheme in SCHEMES for name in ("token", "X-Amz-Signature")]
FORMS += ["s3://bucket/x?page=1&password={}", "s3://KEY:{}@bucket", "x.csv;jsessionid={}", "PGPASSWORD={}"]
FORMS += ["DefaultEndpointsProtocol=https;AccountName=a;AccountKey={}", "host=h password={}", "user:{}@host"]


@st.composite
def secrets(draw: st.DrawFn, *, is_query: bool) -> str:
    """Two halves that a message can be searched for, with what should have been escaped around them.

    Behind ``&``, the value of a parameter has ended. A password has no port's digits in front of a slash: nobody could
    tell ``http://ann:80/PW@host`` from a port and a path.
    """
    special = st.text(st.sampled_from("@:/?#%=+ '\"[],;\\ä" + ("" if is_query else "&")), max_size=3)
    escaped = st.sampled_from(["", "%40", "%3A", "%2F", "%3f", "%25", "%20"])
    return draw(special) + HALVES[0] + draw(special) + draw(escaped) + HALVES[1]


def texts() -> st.SearchStrategy[str]:
    return st.sampled_from(FORMS).flatmap(lambda form: secrets(is_query="@" not in form).map(form.format))


def _commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from _commands(command, (*names, name))
            elif command is not None:
                yield (*names, name), command


# Their words are searched for, not a name of anything.
_NOT_NAMES = {"search"}
_OPTIONS = {"--data-dir", "--to", "--location", "--url", "--allow-host", "--against", "--output", "--as"}


def _places() -> list[str]:
    """Each command with ``{}`` in one of its arguments, behind them, or in an option that names a place."""
    places = []
    for names, command in _commands(cli):
        if names[0] in _NOT_NAMES:
            continue
        plain = [_plain(one) for one in command.params if isinstance(one, click.Argument)]
        at = range(len(plain) + 1)
        places += [" ".join((*names, *plain[:place], "{}", *plain[place + 1 :])) for place in at]
        options = {name for option in command.params for name in option.opts} & _OPTIONS
        places += [" ".join((*names, *plain, name, "{}")) for name in sorted(options)]
    return places


def _plain(argument: click.Argument) -> str:
    if isinstance(argument.type, click.Choice):
        return str(argument.type.choices[0])
    name = argument.name or ""
    return {"split": "train", "expression": "train", "version": "1.0.0"}.get(name, "numbers:1.0.0")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    Path(folder, "numbers.csv").write_text("n\n1\n2\n3\n")
    with registry.connect(folder / "catalog.db") as catalog:
        catalog.add(folder / "numbers.csv")
    return folder


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a network, which gives up at once."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setenv("REGISTRY_TRIES", "1")
    monkeypatch.setenv("REGISTRY_RETRY_TIMEOUT", "0.2")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize("place", _places()[::9])
def test_no_command_prints_the_password_of_an_argument(place: str, published: Path) -> None:
    @settings(derandomize=True, max_examples=4)
    @given(texts(), st.sampled_from(["human", "json"]), st.booleans())
    def check(text: str, output: str, debug: bool) -> None:
        with tempfile.TemporaryDirectory() as folder, chdir(folder), pytest.MonkeyPatch.context() as patch:
            shutil.copytree(published, folder, dirs_exist_ok=True)
            patch.setenv("REGISTRY_CATALOG", f"{folder}/catalog.db")
            patch.setenv("REGISTRY_DEBUG", "1" if debug else "")
            arguments = [*(text if one == "{}" else one for one in place.split(" ")), "--format", output]
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                run(arguments)
            said = out.getvalue() + err.getvalue()
            assert not shown(said), (arguments, said)
            assert "fault of the registry" not in said, (arguments, said)

    check()


_CALLS: dict[str, Callable[[registry.Catalog, str], object]] = {
    "open_store": lambda _catalog, text: open_store(text).list(),
    "load_pin": lambda _catalog, text: registry.load_pin(text),
    "connect": lambda _catalog, text: registry.connect("catalog.db", data_dir=text).datasets(),
    "add": lambda catalog, text: catalog.add(text, name="x"),
    "dataset": lambda catalog, text: catalog.dataset(text),
    "import_parquet": lambda catalog, text: catalog.import_parquet(text, name="x"),
    "import_tfds": lambda catalog, text: catalog.import_tfds(text),
    "publish": lambda catalog, text: catalog.publish(text),
    "mirrors.remove": lambda catalog, text: catalog.mirrors.remove("numbers:1.0.0", text),
    "mirrors.add": lambda catalog, text: catalog.mirrors.add("numbers:1.0.0", text),
    "backup": lambda catalog, text: catalog.backup(text),
    "set_data_dir": lambda catalog, text: catalog.set_data_dir(text),
}


@pytest.mark.parametrize("name", sorted(_CALLS))
def test_no_error_of_a_call_contains_the_password_of_its_argument(name: str, published: Path) -> None:
    @settings(derandomize=True, max_examples=4)
    @given(texts())
    def check(text: str) -> None:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            shutil.copytree(published, folder, dirs_exist_ok=True)
            with registry.connect("catalog.db") as catalog:
                said = ""
                try:
                    _CALLS[name](catalog, text)
                except RegistryError as error:
                    said = everything_of(error)
                assert not shown(said), (text, said)

    check()
