"""The settings of a service: which value wins, and how each wrong one is refused."""

from __future__ import annotations

import dataclasses
import re
import socket
from functools import partial
from pathlib import Path

import pytest
from support.golden import check_errors, check_texts

from registry.cli.main import run
from registry.errors import UsageError
from registry.server.config import PREFIX, ServiceConfig, load_config, source_of

GOLDEN = Path(__file__).with_name("golden")


GUIDE = Path(__file__).parents[2] / "docs/service.md"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in dataclasses.fields(ServiceConfig):
        monkeypatch.delenv(f"{PREFIX}{field.name.upper()}", raising=False)
    monkeypatch.delenv("REGISTRY_SERVE_CONFIG", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "service.yaml"


def refusal(path: Path | None = None, **options: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load_config(path, **options)
    return caught.value


def test_an_option_wins_over_a_variable_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("port: 1\nworkers: 2\nin_flight: 3\n", encoding="utf-8")
    monkeypatch.setenv("REGISTRY_SERVE_PORT", "10")
    monkeypatch.setenv("REGISTRY_SERVE_WORKERS", " 20 ")
    monkeypatch.setenv("REGISTRY_SERVE_BODY_SECONDS", "")
    config = load_config(file, port=100, host=None)
    assert config == ServiceConfig(port=100, workers=20, in_flight=3)


def test_variables_have_the_types_of_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_SERVE_ANONYMOUS_READS", "Yes")
    monkeypatch.setenv("REGISTRY_SERVE_TRUSTED_PROXIES", "10.0.0.0/8, ::1,")
    monkeypatch.setenv("REGISTRY_SERVE_DATA_DIR", "1")
    config = load_config()
    assert (config.anonymous_reads, config.trusted_proxies, config.data_dir) == (True, ("10.0.0.0/8", "::1"), "1")


def test_the_sample_of_the_guide_is_valid(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = re.findall("```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(samples) == 2  # the second one is added to the first
    file.write_text("".join(samples), encoding="utf-8")
    monkeypatch.setenv("REGISTRY_SERVE_CONFIG", str(file))
    config = load_config()
    assert (config.host, config.workers, config.trusted_proxies) == ("127.0.0.1", 2, ("127.0.0.1",))
    assert config.clients["tries"] == 4


def test_a_text_that_looks_like_a_number_needs_quotes(file: Path) -> None:
    file.write_text("port: 1\nhost: 127.0.0.1\n", encoding="utf-8")
    error = refusal(file)
    assert error.message == f"{file}: line 2, host: YAML parsers disagree about the type of 127.0.0.1"
    assert error.hint == 'For a text, write "127.0.0.1"'


WRONG = [
    *("port: 65536", 'port: "80"', "port: true", "port: -1", "workers: 0", 'anonymous_reads: "yes"', "host: null"),
    *("host: [a]", 'host: ""', "data_dir: 5", 'trusted_proxies: ["10.0.0.1/8"]', "trusted_proxies: host"),
    *(
        'allowed_hosts: ["a:80"]',
        'allowed_hosts: ["http://a/"]',
        "cors_origins: [https://a/]",
        'cors_origins: ["null"]',
    ),
    *('public_url: "data.example.org"', 'public_url: "https://a:b@host/"', 'metrics_token: "too-short"'),
    *("metrics_token: 1234567890123456", "session_key: too-short", "webhook_key: too-short"),
]


def test_a_wrong_value_is_refused_with_its_line_and_the_default_as_in_the_file(file: Path) -> None:
    def load(line: str) -> None:
        file.write_text(f"# settings\n{line}\n", encoding="utf-8")
        error = refusal(file)
        assert "too-short" not in f"{error.message} {error.hint} {error.details}"
        raise error

    calls = {line: partial(load, line) for line in WRONG}
    check_errors(Path(__file__).with_name("golden") / "server_config.txt", calls, folder=file.parent)


def test_files_that_are_not_settings_are_refused(file: Path) -> None:
    assert refusal(file).message == f"{file} cannot be read: No such file or directory"
    for text, problem in (
        ("port: 1\nport: 2\n", "line 2, port: the key is given twice, in line 1 and here"),
        ("- port\n", "expected one YAML mapping"),
        ("port: no\n", "line 1, port: "),
        ("port: [\n", "line 2: not YAML: "),
    ):
        file.write_text(text, encoding="utf-8")
        assert refusal(file).message.startswith(f"{file}: {problem}")


def test_an_unknown_variable_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_SERVE_PROT", "80")
    error = refusal()
    assert error.message == "REGISTRY_SERVE_PROT: unknown setting"
    assert error.hint.startswith("Did you mean REGISTRY_SERVE_PORT? The settings are: REGISTRY_SERVE_CATALOG, ")


def test_a_list_of_one_item_may_be_a_text_in_the_file(file: Path) -> None:
    file.write_text("webhook_key: 0123456789abcdef\nwebhook_hosts: localhost, 10.1.0.0/16\n")
    config = load_config(file)
    assert config.webhook_key == ("0123456789abcdef",)
    assert config.webhook_hosts == ("localhost", "10.1.0.0/16")


def test_the_secret_is_in_no_text_of_the_settings() -> None:
    assert "0123456789abcdef" not in repr(ServiceConfig(metrics_token="0123456789abcdef"))  # noqa: S106 (of the test)


def test_a_setting_says_where_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "service.yaml"
    path.write_text("port: 8000\n")
    assert source_of("port", None, None) == ""
    assert source_of("port", path, None) == f"port of {path}"
    assert source_of("catalog", path, None) == ""
    monkeypatch.setenv("REGISTRY_SERVE_PORT", "8001")
    assert source_of("port", path, None) == "REGISTRY_SERVE_PORT"
    assert source_of("port", path, 8002) == "--port"


def test_a_missing_catalog_and_a_port_in_use_say_what_named_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, missing = tmp_path / "service.yaml", tmp_path / "missing.db"
    path.write_text(f"catalog: {missing}\n")
    assert run(["serve", "--config", str(path)]) == 3
    assert capsys.readouterr().err.endswith(f"This path comes from catalog of {path}.\n")
    monkeypatch.setenv("REGISTRY_SERVE_CATALOG", str(missing))
    assert run(["serve"]) == 3
    assert capsys.readouterr().err.endswith("This path comes from REGISTRY_SERVE_CATALOG.\n")
    monkeypatch.setenv("REGISTRY_SERVE_CATALOG", "https://catalog.example/")
    assert run(["serve"]) == 2
    assert capsys.readouterr().err.endswith("This catalog comes from REGISTRY_SERVE_CATALOG.\n")
    monkeypatch.setenv("REGISTRY_SERVE_CATALOG", str(tmp_path / "catalog.db"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        path.write_text(f"port: {port}\n")
        assert run(["serve", "--init", "--config", str(path)]) != 0
    assert capsys.readouterr().err.endswith(f"registry serve --port 8081\nThe port comes from port of {path}.\n")


def test_an_empty_path_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [*(f"serve {option}" for option in ("--config", "--catalog", "--data-dir", "--host", "--public-url"))]
    commands += [
        "doctor --config",
        "login",
        "logout",
        "login https://lab.example --id-token-file",
        "mcp --allow-publish",
    ]
    lines = []
    for command in commands:
        assert run([*command.split(), ""]) == 2
        lines.append(f"{command} '': {capsys.readouterr().err}")
    check_texts(GOLDEN / "server_config_paths.txt", lines)
