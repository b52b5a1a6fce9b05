"""Laws of effects: exactly the natural references that would resolve to another version are named."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import assume, given
from hypothesis import strategies as st
from support.strategies import standings, version_requests

from registry.errors import RegistryError
from registry.model import (
    Reference,
    Standing,
    Use,
    VersionRequest,
    VersionState,
    changes,
    default_effects,
    natural_effects,
    use_effects,
)
from registry.model.changes import answer


def naturals(name: str, config: str | None, *standings: Standing) -> Iterator[Reference]:
    """Every natural reference to any version there is, from the definition."""
    yield Reference(name, config)
    texts = {"*"}
    for standing in standings:
        for alias in standing.aliases:
            yield Reference(name, config, alias=alias)
        for one in standing.candidates:
            major, minor = one.version.major, one.version.minor
            texts |= {str(one.version), f"{major}.*", f"{major}.{minor}.*", f"^{major}.{minor}"}
    for text in texts:
        yield Reference(name, config, VersionRequest.parse(text))


@st.composite
def changed(draw: st.DrawFn) -> tuple[Standing, Standing]:
    """The state of versions before and after some action."""
    before = draw(standings())
    candidate = draw(st.sampled_from(before.candidates))
    others = [one.version for one in before.candidates]
    try:
        match draw(st.sampled_from(["promote", "deprecate", "yank", "drop", "undo", "alias"])):
            case "promote":
                return before, changes.promote(before, candidate)
            case "deprecate":
                return before, changes.deprecate(before, candidate, "move on")
            case "yank":
                return before, changes.yank(before, candidate, "bad", draw(st.none() | st.sampled_from(others)))
            case "drop":
                return before, changes.drop(before, candidate, "gone")
            case "undo":
                was = draw(st.sampled_from([VersionState.SUPPORTED, VersionState.DEPRECATED]))
                earlier = type(candidate)(version=candidate.version, state=was)
                return before, changes.undo(before, candidate, VersionState.YANKED, earlier)
            case _:
                return before, before.point(draw(st.sampled_from(["paper", "new"])), candidate.version)
    except RegistryError:
        assume(False)  # a refused action changes nothing
        raise


@given(changed())
def test_every_natural_reference_that_changes_is_named_and_no_other(pair: tuple[Standing, Standing]) -> None:
    before, after = pair
    expected = {
        wanted: (answer(before, wanted), answer(after, wanted))
        for wanted in naturals("mnist", None, before, after)
        if answer(before, wanted) != answer(after, wanted)
    }
    effects = natural_effects(before, after)
    assert {effect.wanted: (effect.before, effect.after) for effect in effects} == expected
    assert len(effects) == len(expected)


@given(changed(), version_requests())
def test_a_reference_in_use_is_named_if_its_version_changes(
    pair: tuple[Standing, Standing], request: VersionRequest
) -> None:
    before, after = pair
    wanted = Reference("mnist", request=request)
    effects = use_effects(before, after, [Use(reference=wanted, place="a:1"), Use(reference=wanted, place="b:7")])
    if answer(before, wanted) == answer(after, wanted):
        assert effects == ()
    else:
        (effect,) = effects
        assert (effect.wanted, effect.places) == (wanted, ("a:1", "b:7"))
        same = effect.before.reference == effect.after.reference
        assert same == (effect.kind.value in ("starts_to_warn", "stops_warning", "note_changes"))


@given(st.none() | standings(config="plain"), standings(config="rotated"))
def test_another_default_config_names_every_reference_without_one(before: Standing | None, after: Standing) -> None:
    known = [after] if before is None else [before, after]
    expected = {
        wanted: (answer(before, wanted), answer(after, wanted))
        for wanted in naturals("mnist", None, *known)
        if answer(before, wanted) != answer(after, wanted)
    }
    effects = default_effects(before, after)
    assert {effect.wanted: (effect.before, effect.after) for effect in effects} == expected
    assert len(effects) == len(expected)
