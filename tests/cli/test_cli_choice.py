"""Why a look-up gave its version, as the command line says it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from registry.catalog.selection import explain_refusal
from registry.cli.browse import describe_considered, explained_refusal
from registry.cli.output import Output
from registry.errors import NotFoundError
from registry.model import Candidate, Reference, Standing, Version, VersionState, choose

Cli = Callable[..., "Ran"]  # noqa: F821 (the fixtures of conftest.py)


def test_a_long_table_of_versions_is_cut_around_the_chosen_one(capsys: pytest.CaptureFixture[str]) -> None:
    standing = Standing(name="many", candidates=tuple(Candidate(version=Version(1, n, 0)) for n in range(99, -1, -1)))
    considered = choose(standing, Reference.parse("many:1.2.*")).considered
    Output(as_json=False).tell(describe_considered(considered))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 20 + 1 + 2
    assert lines[21].split() == ["1.2.0", "experimental", "chosen"]
    assert lines[22] == "and 79 more; --format json lists them all"


REFUSED = {
    "the canonical version is yanked": ("numbers", 6, ["experimental", "not the canonical version", "yanked: wrong"]),
    "all that match are yanked": ("numbers:1.0.*", 6, ["experimental", "not in 1.0.*", "yanked: wrong"]),
    "nothing matches": ("numbers:7.*", 3, ["experimental", "not in 7.*.*", "not in 7.*.*"]),
    "no such version": ("numbers:7.0.0", 3, ["experimental", "not 7.0.0", "not 7.0.0"]),
    "no such alias": ("numbers@paper", 3, ["experimental", "paper does not point to it", "paper does not point to it"]),
}


@pytest.mark.parametrize("command", [["show"], ["resolve", "train"]])
@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_look_up_says_what_was_considered(numbers: Cli, case: str, command: list[str]) -> None:
    reference, code, (status, others, last) = REFUSED[case]
    assert numbers("yank", "numbers:1.0.0", "--reason", "wrong").code == 0
    call = [command[0], reference, *command[1:]]
    rows = [(version, status, others) for version in ("2.0.0", "1.1.1", "1.1.0")] + [("1.0.0", "yanked", last)]

    why, bare = numbers(*call, "--why"), numbers(*call)

    assert (why.code, bare.code, bare.out) == (code, code, "")
    assert why.err == bare.err
    lines = ["VERSION  STATUS        VERDICT", *(f"{one}    {stands:<12}  {verdict}" for one, stands, verdict in rows)]
    assert why.out == "\n".join(lines) + "\n\n"
    told = numbers(*call, "--why", "--format", "json")
    assert (told.code, told.out) == (code, "")
    assert [tuple(one.values()) for one in told.error()["details"]["considered"]] == rows


def test_of_very_many_versions_a_refusal_names_those_that_were_meant(capsys: pytest.CaptureFixture[str]) -> None:
    candidates = [Candidate(version=Version(2, n, 0)) for n in range(399, -1, -1)]
    candidates.append(Candidate(version=Version(1, 0, 0), state=VersionState.YANKED, message="wrong"))
    standing = Standing(name="many", candidates=tuple(candidates))
    error = explain_refusal(choose(standing, Reference.parse("many:1.*")))
    assert (len(error.details["considered"]), error.details["num_considered"]) == (100, 401)

    with pytest.raises(NotFoundError), explained_refusal(Output(as_json=False), True):
        raise error

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 20 + 1 + 2
    assert lines[21].split(maxsplit=2) == ["1.0.0", "yanked", "yanked: wrong"]
    assert lines[22] == "and 380 more; registry versions lists them all"
