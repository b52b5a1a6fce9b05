"""``registry browse`` as a process: it serves the loopback interface only, and ends at once whatever is open."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support import warm_python
from support.browse_process import Browse
from support.warm_python import PROGRAM

import registry
from registry.features import FeaturesDict, Scalar
from registry.server.browse import listen

BROWSER = """\
# It goes on running, as browsers for terminals do.
import os, pathlib, sys, time
os.closerange(1, 3)
path = pathlib.Path(sys.argv[0])
path.with_name("opening").write_text(sys.argv[1])
path.with_name("opening").rename(path.with_name("opened"))
while path.exists():
    time.sleep(0.05)
"""


class Numbers(registry.DatasetBuilder):
    VERSION = "1.0.0"

    def features(self) -> FeaturesDict:
        return FeaturesDict({"x": Scalar("int64")})

    def splits(self) -> Any:
        return {"train": [(i, {"x": i}) for i in range(10)]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browse")
    with registry.connect(folder / "c.db", create=True) as catalog:
        catalog.build(Numbers)
    return folder


@pytest.fixture(scope="module")
def browse(folder: Path) -> Iterator[Browse]:
    with Browse(folder / "c.db", "--no-open") as browse:
        yield browse


def send(browse: Browse, request: bytes) -> bytes:
    with socket.create_connection(browse.place, timeout=20) as connection:
        connection.sendall(request)
        return connection.recv(100_000)


def test_pages_are_served(browse: Browse) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", browse.url)
    assert browse.get().status == 200
    response = browse.get("datasets/numbers/1.0.0/")
    assert (response.status, response.headers.get("server")) == (200, None)
    assert browse.get("/").status == 404


def test_head_has_no_body_and_a_connection_stays_open(browse: Browse) -> None:
    connection = http.client.HTTPConnection(*browse.place, timeout=20)
    for method in ("HEAD", "GET", "POST", "HEAD"):
        connection.request(method, urlsplit(browse.url).path)
        response = connection.getresponse()
        body = response.read()
        assert bool(body) == (method != "HEAD")
        assert int(response.getheader("content-length") or 0) > 0
    connection.close()


@pytest.mark.parametrize(
    "line",
    [
        b"GET /%s/../../../../etc/passwd HTTP/1.1",
        b"GET /%s/%%2e%%2e/%%2e%%2e/etc/passwd HTTP/1.1",
        b"GET /%s/%%00 HTTP/1.1",
        b"GET /%s/%%c3%%28/ HTTP/1.1",
        b"GET /%s/%%zz/ HTTP/1.1",
        b"GET /%s/\xc3\xa4/ HTTP/1.1",
        b"GET /%s/" + b"a" * 70_000 + b" HTTP/1.1",
        b"GET /%s/?q=" + b"a" * 20_000 + b" HTTP/1.1",
        b"GET /%s/?" + b"a=1&" * 10_000 + b" HTTP/1.1",
        b"GET http://evil.example/%s/ HTTP/1.1",
        b"CONNECT /%s/ HTTP/1.1",
        b"GET /%s HTTP/9.9",
        b"nonsense %s",
    ],
)
def test_odd_requests_are_refused(browse: Browse, line: bytes) -> None:
    secret = urlsplit(browse.url).path.strip("/").encode()
    line = line.replace(b"%s", secret).replace(b"%%", b"%")
    answer = send(browse, line + b"\r\nHost: 127.0.0.1:%d\r\n\r\n" % browse.place[1])
    status = int(answer.split(b" ", 2)[1])
    assert status in (308, 400, 404, 405, 414, 431), answer[:300]
    assert b"Traceback" not in answer
    assert b"root:" not in answer
    assert browse.get().status == 200


def test_a_second_host_header_is_refused(browse: Browse) -> None:
    path = urlsplit(browse.url).path.encode()
    for hosts in (b"", b"Host: evil.example\r\n", b"Host: evil.example\r\nHost: 127.0.0.1:%d\r\n" % browse.place[1]):
        answer = send(browse, b"GET %s HTTP/1.1\r\n%s\r\n" % (path, hosts))
        assert int(answer.split(b" ", 2)[1]) in (400, 403)


def test_no_other_interface_is_served(browse: Browse) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; the system chooses the interface
            address = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.2"  # no network: another address of the loopback interface
    for other in {address, "127.0.0.2"} - {"127.0.0.1"}:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((other, browse.place[1]), timeout=5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_open_connections(folder: Path, number: int) -> None:
    with Browse(folder / "c.db", "--no-open") as browse:
        kept = http.client.HTTPConnection(*browse.place, timeout=20)
        kept.request("GET", urlsplit(browse.url).path)
        kept.getresponse().read()
        with socket.create_connection(browse.place) as half, socket.create_connection(browse.place):
            half.sendall(b"GET /half")
            assert browse.end(number) == (0, "Press Ctrl-C to stop.\n")
        kept.close()
        with socket.create_server(browse.place):  # the port is free again
            pass


def test_a_second_signal_does_not_wait_for_a_slow_page(folder: Path) -> None:
    code = f"""
import time, registry, registry.server.app
from registry.server.browse import serve_pages
registry.server.app.answer = lambda visit: print("asked", flush=True) or time.sleep(600)
with registry.connect({str(folder / "c.db")!r}) as catalog:
    serve_pages(catalog, opens=False, ready=lambda url: print(url, flush=True))
"""
    with warm_python.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        url = urlsplit(process.stdout.readline().strip())
        with socket.create_connection(("127.0.0.1", url.port or 0)) as connection:
            connection.sendall(f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\n\r\n".encode())
            assert process.stdout.readline() == "asked\n"
            while process.poll() is None:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
    assert process.returncode == 0


def test_connections_send_at_once() -> None:
    with listen(0) as listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_taken_port_is_an_error_with_a_hint(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [PROGRAM, "browse", "--no-open", "--port", str(port)]
        environment = os.environ | {"REGISTRY_CATALOG": f"{folder}/c.db"}
        done = warm_python.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"error: port {port} cannot be used: address already in use\n"
        "hint: Choose another port, or leave out --port to get a free one: registry browse\n"
    )


def test_two_browses_have_their_own_secrets(folder: Path, browse: Browse) -> None:
    with Browse(folder / "c.db", "numbers", "--no-open") as other:
        assert other.url.endswith("/datasets/numbers/1.0.0/")
        assert other.get().status == 200
        assert other.get(urlsplit(browse.url).path).status == 404
        assert other.end()[0] == 0
    assert browse.get().status == 200


def test_the_browser_gets_an_invitation_and_never_the_secret(folder: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\n{BROWSER}")
    browser.chmod(0o755)
    with Browse(
        folder / "c.db", "numbers", BROWSER=f"{browser} %s"
    ) as browse:  # it goes on running, as one for terminals
        assert browse.get().status == 200
        while not (tmp_path / "opened").exists():
            assert browse.process.poll() is None
        invitation = urlsplit((tmp_path / "opened").read_text())
        secret = urlsplit(browse.url).path.split("/")[1]
        assert secret not in invitation.path
        first, second = browse.get(invitation.path), browse.get(invitation.path)
        assert (first.status, first.headers["location"]) == (303, f"/{secret}/datasets/numbers/1.0.0/")
        assert second.status == 410
        assert browse.end()[0] == 0
    browser.unlink()


def test_without_a_browser_the_address_is_printed(folder: Path, tmp_path: Path) -> None:
    with Browse(folder / "c.db", PATH=str(tmp_path), BROWSER="", DISPLAY="", WAYLAND_DISPLAY="") as browse:
        assert browse.get().status == 200
        assert browse.end() == (0, "Press Ctrl-C to stop.\n")
