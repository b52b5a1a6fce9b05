"""The verdicts and notes of a look-up on each considered version, word for word."""

from __future__ import annotations

import pytest

from registry.model import Answer, Candidate, Effect, Reference, Standing, Version, VersionState, choose

STANDING = Standing(
    name="mnist",
    candidates=tuple(
        Candidate(
            version=Version.parse(number),
            state=state,
            message=message,
            superseded_by=None if by is None else Version.parse(by),
        )
        for number, state, message, by in (
            ("4.0.0", VersionState.SUPPORTED, "", None),
            ("3.1.1", VersionState.DEPRECATED, "use 4", None),
            ("3.1.0", VersionState.YANKED, "wrong labels", "3.1.1"),
            ("3.0.0", VersionState.SUPPORTED, "", None),
            ("1.0.0", VersionState.DROPPED, "its licence ended", None),
        )
    ),
    canonical=Version(3, 0, 0),
    aliases={"paper": Version(3, 1, 0), "old": Version(1, 0, 0)},
)
VERDICTS = {
    "mnist": [
        "not the canonical version",
        "not the canonical version",
        "not the canonical version",
        "chosen",
        "not the canonical version",
    ],
    "mnist:^3.0": [
        "not in ^3.0",
        "chosen",
        "yanked: wrong labels; superseded by 3.1.1",
        "lower than 3.1.1",
        "not in ^3.0",
    ],
    "mnist:<=3.0.0": ["not in <=3.0.0"] * 3 + ["chosen", "dropped: its licence ended"],
    "mnist:3.0.0": ["not 3.0.0", "not 3.0.0", "not 3.0.0", "chosen", "not 3.0.0"],
    "mnist:1.*": ["not in 1.*.*"] * 4 + ["dropped: its licence ended"],
    "mnist:1.0.0": ["not 1.0.0"] * 4 + ["dropped: its licence ended"],
    "mnist@paper": ["paper does not point to it"] * 2 + ["chosen"] + ["paper does not point to it"] * 2,
    "mnist@old": ["old does not point to it"] * 4 + ["dropped: its licence ended"],
}
NOTES = {
    "mnist": None,
    "mnist:*": "mnist:4.0.0 is experimental: the canonical version is 3.0.0",
    "mnist:3.*": "mnist:3.1.1 is deprecated: use 4",
    "mnist@paper": "mnist:3.1.0 is yanked: wrong labels; superseded by 3.1.1",
}
PROBLEMS = {
    "mnist:1.*": "no version '1.*.*' of mnist can be read: 1.0.0 is dropped: its licence ended",
    "mnist:1.0.0": "version 1.0.0 of mnist is dropped: its licence ended",
    "mnist@old": "mnist@old points to 1.0.0, which is dropped: its licence ended",
    "mnist@new": "no alias 'new' in mnist",
    "mnist:2.*": "no version '2.*.*' in mnist",
}


@pytest.mark.parametrize("wanted", VERDICTS)
def test_every_considered_version_has_a_verdict(wanted: str) -> None:
    considered = choose(STANDING, Reference.parse(wanted)).considered
    assert [one.verdict for one in considered] == VERDICTS[wanted]
    assert [one.status.value for one in considered] == [
        "experimental",
        "deprecated",
        "yanked",
        "canonical",
        "dropped",
    ]


@pytest.mark.parametrize("wanted", NOTES)
def test_a_look_up_notes_what_readers_should_know(wanted: str) -> None:
    assert choose(STANDING, Reference.parse(wanted)).note == NOTES[wanted]


@pytest.mark.parametrize("wanted", PROBLEMS)
def test_a_refusal_says_why(wanted: str) -> None:
    choice = choose(STANDING, Reference.parse(wanted))
    assert (choice.version, choice.problem) == (None, PROBLEMS[wanted])
    assert choice.sentences == (f"{PROBLEMS[wanted]}.",)


def test_very_many_withdrawn_versions_are_counted() -> None:
    candidates = tuple(
        Candidate(version=Version(1, minor, 0), state=VersionState.YANKED, message="no") for minor in range(19, -1, -1)
    )
    choice = choose(Standing(name="mnist", candidates=candidates), Reference.parse("mnist:1.*"))
    assert choice.problem.endswith("1.15.0 is yanked: no and 15 more are withdrawn")
    low = Standing(name="mnist", candidates=(*candidates, Candidate(version=Version(0, 1, 0))))
    sentences = choose(low, Reference.parse("mnist:*")).sentences
    assert sentences[0].startswith("mnist:*.*.* allows 1.19.0, 1.18.0, 1.17.0, 1.16.0, 1.15.0 and 16 more: 0.1.0 is")
    assert sentences[-2:] == (
        "15 more above it are skipped: they are yanked or dropped.",
        "0.1.0 is experimental, and no version is canonical yet.",
    )


def test_an_effect_is_named_by_its_consequence_for_readers() -> None:
    wanted = Reference.parse("mnist:3.*")
    first, second = Reference.parse("mnist:3.0.0"), Reference.parse("mnist:3.1.0")

    def kind(before: tuple[Reference | None, str], after: tuple[Reference | None, str]) -> str:
        answers = [Answer(reference=reference, note=note) for reference, note in (before, after)]
        return Effect(wanted=wanted, before=answers[0], after=answers[1]).kind.value

    assert kind((first, ""), (second, "yanked")) == "moves"
    assert kind((first, ""), (None, "dropped")) == "is_refused"
    assert kind((None, "dropped"), (first, "")) == "is_answered"
    assert kind((first, "experimental"), (first, "yanked: bad")) == "starts_to_warn"
    assert kind((first, "yanked: bad"), (first, "")) == "stops_warning"
    assert kind((first, "experimental"), (first, "")) == "note_changes"
    assert kind((first, "yanked: bad"), (first, "yanked: worse")) == "note_changes"
    assert kind((None, "yanked"), (None, "dropped")) == "note_changes"
