"""Laws of a choice: the chosen version is allowed, no better one is skipped, and every version has a verdict."""

from __future__ import annotations

from hypothesis import given
from support.strategies import standings, version_requests

from registry.model import Reference, Refusal, Standing, Version, VersionRequest, VersionState, choose


@given(standings(), version_requests())
def test_a_range_gives_the_highest_readable_version_that_it_allows(standing: Standing, request: VersionRequest) -> None:
    if request.exact is not None:
        return
    choice = choose(standing, Reference("mnist", request=request))
    allowed = [one for one in standing.candidates if request.allows(one.version)]
    readable = [one.version for one in allowed if one.state.value in ("supported", "deprecated")]
    assert choice.version == max(readable, default=None)
    if not readable:
        assert choice.refusal is (Refusal.ALL_WITHDRAWN if allowed else Refusal.NO_MATCH)
        assert all(str(one.version) in choice.problem for one in allowed[:5])


@given(standings())
def test_exact_numbers_and_aliases_give_all_but_dropped_versions(standing: Standing) -> None:
    for one in standing.candidates:
        choice = choose(standing, standing.exactly(one.version))
        assert choice.version == (None if one.state is VersionState.DROPPED else one.version)
        assert (choice.note is None) == (choice.version is None or standing.status(one).value in GOOD)
    for name, version in standing.aliases.items():
        choice = choose(standing, Reference("mnist", alias=name))
        assert choice.version == choose(standing, standing.exactly(version)).version
    assert choose(standing, Reference.exactly("mnist", None, Version(9, 9, 9))).refusal is Refusal.NO_MATCH
    assert choose(standing, Reference("mnist", alias="other")).refusal is Refusal.NO_ALIAS


@given(standings())
def test_no_request_gives_the_canonical_version_or_nothing(standing: Standing) -> None:
    choice = choose(standing, Reference("mnist"))
    if standing.canonical is None:
        assert choice.refusal is Refusal.NO_CANONICAL
    else:
        found = standing.find(standing.canonical)
        assert found is not None
        assert choice.version == (None if found.is_withdrawn else standing.canonical)


@given(standings(config="plain"), version_requests())
def test_every_version_has_a_verdict_and_one_at_most_is_chosen(standing: Standing, request: VersionRequest) -> None:
    for wanted in (Reference("mnist"), Reference("mnist", request=request), Reference("mnist", alias="paper")):
        choice = choose(standing, wanted)
        assert [one.version for one in choice.considered] == [one.version for one in standing.candidates]
        assert [one.version for one in choice.considered if one.verdict == "chosen"] == (
            [] if choice.version is None else [choice.version]
        )
        assert all(one.verdict for one in choice.considered)
        assert choice.sentences[0] == f"{wanted} does not name a config: plain is the default config of mnist."
        assert (choice.problem == "") == (choice.version is not None)


GOOD = ("canonical", "supported")
