"""``use_engine`` and the argument ``engine``, with an engine of this process in place of a cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import registry
from registry.engines import Engine, Piece, ThisProcess, announced, choice, choose_engine
from registry.engines.engine import in_order
from registry.errors import BuildError, UsageError, WrongTypeError


class Counting(ThisProcess):
    """Counts the runs, and looks like another machine."""

    def __init__(self) -> None:
        super().__init__(threads=2)
        self.runs: list[str] = []

    @property
    def memory_of_piece(self) -> int:
        return 2**30

    def describe(self) -> str:
        return "a test"

    def run(self, pieces: Any, *, doing: str, failure: Any, **options: Any) -> Any:
        self.runs.append(doing)
        return super().run(pieces, doing=doing, failure=failure, **options)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[registry.Catalog]:
    """Its dataset counts as large; but a build begins here, and a busy machine does not let it leave."""
    for name in ("_TRIAL_SECONDS", "_WAITING_TRIAL_SECONDS"):
        monkeypatch.setattr(choice, name, 3600.0)
    with registry.connect(tmp_path / "catalog.db") as opened:
        opened.build("digits", processes=1)
        monkeypatch.setattr(choice, "_SMALL_BYTES", 0)
        yield opened


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="registry.engines")
    return caplog


CALLS: dict[str, tuple[Callable[..., Any], str]] = {
    "build": (lambda catalog, **to: catalog.build("digits", rebuild=True, **to), "building digits"),
    "preview_build": (lambda catalog, **to: catalog.preview_build("digits", rebuild=True, **to), "building digits"),
    "publish": (
        lambda catalog, **to: catalog.publish(catalog.dataset("digits").local_folder, **to),
        "publishing {data_dir}/digits/1.0.0",
    ),
    "preview": (
        lambda catalog, **to: catalog.preview(catalog.dataset("digits").local_folder, **to),
        "comparing {data_dir}/digits/1.0.0",
    ),
    "import_tfds": (
        lambda catalog, **to: catalog.import_tfds(catalog.dataset("digits").local_folder, **to),
        "importing {data_dir}/digits/1.0.0",
    ),
    "verify": (lambda catalog, **to: catalog.dataset("digits").verify(**to), "verifying digits:1.0.0"),
    "verify_all": (lambda catalog, **to: catalog.verify_all(**to), "verifying every version"),
    "pin": (lambda catalog, **to: catalog.dataset("digits").pin("train", **to), "pinning digits:1.0.0"),
    "pin.verify": (
        lambda catalog, **to: catalog.dataset("digits").pin("train", processes=1)["train"].verify(**to),
        "verifying digits:1.0.0",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_works_with_the_engine_of_the_block(
    catalog: registry.Catalog, name: str, log: pytest.LogCaptureFixture
) -> None:
    call, doing = CALLS[name]
    with Counting() as engine:
        with registry.use_engine(engine):
            call(catalog)
        # The pin that is verified was made by one process, which is this one.
        elsewhere = [message for message in log.messages if not message.startswith("pinning") or name == "pin"]
        assert elsewhere == [f"{doing.format(data_dir=catalog.data_dir)} on a test"]
        num_runs = len(engine.runs)
        call(catalog)  # the block has ended
        with registry.use_engine(engine), registry.use_engine("local"):
            call(catalog)
        assert len(engine.runs) == num_runs
    assert num_runs > 0


def test_an_engine_that_is_given_stays_open(catalog: registry.Catalog) -> None:
    with Counting() as engine:
        with registry.use_engine(engine):
            catalog.dataset("digits").verify()
        assert list(engine.run([Piece(len, "ab")], doing="tested", failure=BuildError)) == [("ab", 2)]


def test_added_data_is_announced_once(catalog: registry.Catalog, tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    (tmp_path / "prices.csv").write_text("id,price\n1,2\n")
    with Counting() as engine, registry.use_engine(engine):
        registry.add(str(tmp_path / "prices.csv"), "prices", catalog=catalog, processes=2)
    assert log.messages == ["adding prices on a test"]


@pytest.mark.parametrize(
    ("engine", "kind", "message"),
    [
        ("rai", UsageError, "unknown engine 'rai'"),
        (5, WrongTypeError, "engine must be str or Engine or None, not int"),
    ],
)
def test_a_wrong_engine_is_one_typed_error(engine: Any, kind: type[UsageError], message: str) -> None:
    with pytest.raises(kind) as caught:
        registry.use_engine(engine).__enter__()
    assert caught.value.message == message


def test_a_wrong_setting_is_a_typed_error() -> None:
    with pytest.raises(WrongTypeError) as caught:
        registry.use_engine("ray", runtime_env="pip")  # type: ignore[arg-type]
    assert caught.value.message == "runtime_env must be a mapping or None, not str"
    for settings in ({"task_memory": 0.5}, {"task_memory": True}, {"object_store_memory": "2GB"}):
        with pytest.raises(UsageError, match="must be a whole number"), registry.use_engine("ray", **settings):  # type: ignore[arg-type]
            pass


def test_a_block_says_once_where_its_work_is_done_and_why() -> None:
    said: list[str] = []

    def work(*choices: dict[str, Any]) -> list[str]:
        said.clear()
        with announced("building prices", tell=said.append):
            for one in choices:
                with choose_engine(**one) as engine:
                    assert engine.width
        return list(said)

    large: dict[str, Any] = {"num_bytes": 2**40}
    with Counting() as engine, registry.use_engine(engine):
        assert work({**large, "reads": ()}, {**large, "reads": ()}) == ["building prices on a test"]
        assert work({**large, "reads": ()}, {"num_bytes": 1}) == ["building prices on a test"]
        assert work({"num_bytes": 1}, large) == ["building prices on this machine, because there is little to do"]
        assert work({"wanted": 1, **large}, {"num_bytes": 1}) == [
            "building prices on this machine, because only one process was requested"
        ]
        assert work(large) == ["building prices on this machine, because it needs files or memory on this machine"]
        assert work() == []
    assert work({**large, "reads": ()}) == []  # no other engine was asked for


def test_an_unknown_amount_of_work_is_announced_when_it_leaves_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_SLOW_SECONDS", 0.0)
    said: list[str] = []
    for trial_seconds, expected in ((0.0, "on a test"), (1e9, "on this machine, because there is little to do")):
        monkeypatch.setattr(choice, "_TRIAL_SECONDS", trial_seconds)
        with (
            Counting() as engine,
            registry.use_engine(engine),
            announced("building prices", tell=said.append),
            choose_engine(num_bytes=None, reads=()) as chosen,
        ):
            assert chosen.memory_of_piece == 2**30
            assert len(list(chosen.run([Piece(len, "ab")] * 9, doing="tested", failure=BuildError))) == 9
        assert said.pop() == f"building prices {expected}"
        assert said == []


def test_pieces_that_do_not_fit_wait_for_results() -> None:
    waiting, most = 0, 0

    def start(piece: Piece[int, int]) -> Any:
        nonlocal waiting, most
        waiting += piece.input
        most = max(most, waiting)
        return Done()

    def finish(piece: Piece[int, int], _: Any) -> int:
        nonlocal waiting
        waiting -= piece.input
        return piece.input

    class Done:
        def cancel(self) -> None: ...

    sizes = [1, 2, 3, 9, 1, 1, 1, 1, 4]
    pieces = (Piece(abs, size) for size in sizes)
    found = in_order(start, pieces, most=3, finish=finish, fits=lambda piece: waiting + piece.input <= 5)
    assert list(found) == [(size, size) for size in sizes]
    assert most == 9  # one that never fits is alone


def test_the_memory_of_a_piece_is_unknown_by_default() -> None:
    engine: Engine = ThisProcess()
    assert engine.memory_of_piece is None
