"""``registry list``: the datasets of the catalog."""

from __future__ import annotations

from registry.cli.options import Session, examples, session_command


@session_command("list", epilog=examples("registry list", "registry list --format json"))
def command(session: Session) -> None:
    """List the datasets of the catalog, by name."""
    with session.connect() as catalog:
        found = catalog.datasets()
    data = [
        {
            "dataset": summary.dataset,
            "is_protected": summary.is_protected,
            "canonical": None if summary.canonical is None else str(summary.canonical),
            "latest": str(summary.latest),
            "num_versions": summary.num_versions,
            "num_examples": summary.num_examples,
            "splits": list(summary.splits),
            "description": summary.description,
            "default_config": summary.is_default and summary.config is not None,
            "config_description": summary.config_description,
            "config_tags": list(summary.config_tags),
        }
        for summary in found
    ]
    rows = [
        (
            summary.dataset,
            str(summary.canonical or summary.latest) + (" (protected)" if summary.is_protected else ""),
            summary.num_versions,
            summary.num_examples,
            ", ".join(summary.splits),
            _first_words(summary.description),
        )
        for summary in found
    ]
    session.out.result(
        "list",
        data,
        lambda: session.out.table(
            ("DATASET", "VERSION", "VERSIONS", "EXAMPLES", "SPLITS", "DESCRIPTION"),
            rows,
            empty="The catalog is empty. Start with: registry quickstart",
        ),
    )


def _first_words(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: line.rfind(" ", 0, limit)] + " …"
