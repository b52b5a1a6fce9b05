"""A notebook, executed in a kernel: objects are tables, long calls draw bars, and a mistyped name is a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import registry
from registry.engines import announcing
from registry.engines.announcing import NotebookBar, notebook_bar
from registry.errors import DatasetNotFoundError, StorageError
from registry.model import Progress

CELLS = (
    "import registry\ncatalog = registry.connect()\nregistry.engines.announcing._PATIENCE = 0.0\n"
    "_ = catalog.build('digits')",
    "catalog.dataset('digits').read('train[:3]')",
    "catalog.dataset('digts')",
)


@pytest.mark.filterwarnings("ignore")  # of the kernel and its client
def test_a_notebook_shows_rows_progress_and_short_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("REGISTRY_CATALOG", str(tmp_path / "catalog.db"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    (build,), (rows,), (error,) = (cell["outputs"] for cell in notebook.cells)
    assert build["output_type"] == "display_data"
    assert build["data"]["text/html"] == ""  # the bar is gone
    assert rows["data"]["text/plain"] == "<Reader train[:3]: 3 examples>"
    assert rows["data"]["text/html"].count("<img ") == 3
    text = "\n".join(error["traceback"])
    assert "catalog.dataset('digts')" in text
    assert "Did you mean 'digits'?" in text
    assert len(text) < 500


def test_a_publication_is_one_line(tmp_path: Path) -> None:
    with registry.connect(tmp_path / "catalog.db") as catalog:
        assert repr(catalog.build("digits")) == "<Publication digits:1.0.0 published: train 1,797>"
        assert repr(catalog.build("digits")) == "<Publication digits:1.0.0 as before: train 1,797>"


def test_a_bar_is_drawn_after_a_second_and_removed() -> None:
    shown: list[str] = []

    class Handle:
        def update(self, bundle: dict[str, str], *, raw: bool) -> None:
            assert raw
            shown.append(bundle["text/html"])

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        shown.append(bundle["text/html"])
        return Handle()

    bar = NotebookBar(display)
    bar(Progress(stage="building", done=1))
    bar.close()
    assert shown == []
    bar._next = 0.0
    bar(Progress(stage="building", subject="<b>", done=1, total=4))
    bar(Progress(stage="building", done=2, total=4))  # too soon
    bar.close()
    assert shown == ['<div><progress value="0.250"></progress> building &lt;b&gt;: 1 of 4 records</div>', ""]
    assert notebook_bar() is None


def test_exports_and_fetches_draw_a_bar(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []

    class Bar:
        def __call__(self, progress: Progress) -> None:
            stages.append(progress.stage)

        def close(self) -> None:
            stages.append("closed")

    with registry.connect(tmp_path / "catalog.db", data_dir=f"{bucket}/data") as catalog:
        catalog.build("digits")
        dataset = catalog.dataset("digits")
        monkeypatch.setattr(announcing, "notebook_bar", Bar)
        monkeypatch.setenv("REGISTRY_CACHE_BYTES", "100MB")
        for call in (
            lambda: dataset.export("jsonl", tmp_path / "digits.jsonl"),
            lambda: dataset.export_tfds(tmp_path / "tfds"),
            lambda: dataset.to_hf("train[:10]", cache_dir=tmp_path / "hf"),
            dataset.fetch,
        ):
            call()
            assert len({*stages}) == 2, stages
            assert stages[-1] == "closed"
            stages.clear()


def test_the_traceback_of_a_notebook_names_the_cause_and_ends() -> None:
    def lines_of(error: registry.RegistryError) -> str:
        return "\n".join(error._render_traceback_())

    try:
        try:
            raise OSError("disk \x1b[31m gone")
        except OSError as error:
            raise StorageError("cannot read", hint="Mount it.") from error
    except StorageError as error:
        text = lines_of(error)
    assert "test_notebook.py" in text
    assert text.endswith("cannot read\nhint: Mount it.\ncaused by:\nOSError: disk �[31m gone")
    itself: Any = DatasetNotFoundError("no dataset")
    itself.__cause__ = itself
    assert lines_of(itself).endswith("no dataset")
