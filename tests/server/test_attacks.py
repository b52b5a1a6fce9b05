"""A hostile holder of a token for ``lab_*`` or for one config, who sends what no client of ours sends."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from support.catalog_samples import publish, sample
from support.service_calls import DATA, HOLDER, NEWER, reservation_of, rows_of, split_of, values_of
from support.services import make_token

from registry.catalog import DataDirectory, EventFilter, Origin, PublicationDetails
from registry.catalog.service.calls import CALLS, kind_of
from registry.catalog.service.messages import codec
from registry.catalog.service.problems import dump_error
from registry.catalog.sql_catalog import SqlCatalog
from registry.errors import CatalogPermissionError, DatasetNotFoundError, RegistryError
from registry.model import Producer, Reference, Role
from registry.server.rights import GuardedCatalog
from registry.server.service import Service


class Attacker:
    """Makes calls with a token, given values or JSON."""

    def __init__(self, catalog: SqlCatalog, role: Role, *patterns: str) -> None:
        self.service = Service(catalog)
        self.token = make_token(catalog, f"{role} of {' '.join(patterns)}"[:200], role, *patterns)
        self.who = self.service.authenticate(f"Bearer {self.token}")

    def send(self, name: str, /, **values: Any) -> Any:
        """The result as JSON; raises the error."""
        sent = {part: codec(kind_of(CALLS[name].sent[part])).dump(value) for part, value in values.items()}
        return self.send_json(name, sent)

    def send_json(self, name: str, values: Any) -> Any:
        answered = self.service.answer(self.who, name, values, key=None, request_id="1")
        assert isinstance(answered.body, bytes)
        return json.loads(answered.body)

    def text(self, name: str, values: Any) -> str:
        """The answer or the problem, as text."""
        try:
            return json.dumps(self.send_json(name, values))
        except RegistryError as error:
            return json.dumps(dump_error(error, request_id="1"))

    def problem(self, name: str, values: Any) -> dict[str, Any]:
        with pytest.raises(RegistryError) as info:
            self.send_json(name, values)
        return dump_error(info.value, request_id="1")


@pytest.fixture
def reader(shared: SqlCatalog) -> Attacker:
    return Attacker(shared, Role.READER, "lab_*")


@pytest.fixture
def publisher(shared: SqlCatalog) -> Attacker:
    return Attacker(shared, Role.PUBLISHER, "lab_*")


@pytest.fixture
def admin(shared: SqlCatalog) -> Attacker:
    """An admin of some datasets."""
    return Attacker(shared, Role.ADMIN, "lab_*")


def refused(attacker: Attacker, name: str, /, **values: Any) -> str:
    """The message of a call that is refused and changes nothing."""
    catalog = attacker.service.catalog
    before = rows_of(catalog)
    with pytest.raises(CatalogPermissionError) as info:
        attacker.send(name, **values)
    assert rows_of(catalog) == before
    return info.value.message.partition(": ")[2]


ELSEWHERE = [
    "secret_digits/plain/1.1.0",
    "lab_digits/../secret_digits/plain/1.1.0",
    "lab_digits/plain/../../secret_digits",
    "lab_digits/plain//x",
    "lab_digits",
    "",
    "/etc",
    "file:///etc",
    "https://169.254.169.254/latest",
    "s3://other/lab_digits/plain/4.0.0",
    f"{DATA}/secret_digits/plain/1.1.0",
    f"{DATA}/lab_digits/../secret_digits",
    f"{DATA}2/lab_digits/plain/4.0.0",
    "lab_digits\\..\\secret_digits",
]


@pytest.mark.parametrize("place", ELSEWHERE)
def test_a_publisher_names_only_places_in_the_folder_of_its_dataset(place: str, publisher: Attacker) -> None:
    version, shards = sample("lab_digits/plain:4.0.0", location=place)
    message = "it names a place that is not in the folder of its dataset"
    exactly = Reference.parse("lab_digits/plain:1.1.0")
    details = PublicationDetails(unreserved=place)
    holder = {"exactly": exactly, "content_digest": "a" * 64, "holder": NEWER}
    if place:
        assert refused(publisher, "publish", version=version, shards=shards, promote=None) == message
        assert refused(publisher, "locations.add", exactly=exactly, location=place) == message
        assert refused(publisher, "reservations.reserve", location=place, **holder) == message
        version, shards = sample("lab_digits/plain:4.0.0", location="lab_digits/plain/4.0.0")
        assert refused(publisher, "publish", version=version, shards=shards, promote=None, details=details) == message


def test_an_admin_of_some_datasets_moves_none_to_the_folder_of_another(admin: Attacker) -> None:
    exactly = Reference.parse("lab_digits/plain:1.1.0")
    for place in filter(None, ELSEWHERE):
        move = {"exactly": exactly, "before": f"{DATA}/lab_digits/mirror", "after": place}
        assert refused(admin, "locations.relocate", **move).endswith("not in the folder of its dataset")


def test_an_admin_of_every_dataset_names_any_place(shared: SqlCatalog) -> None:
    exactly = Reference.parse("lab_digits/plain:1.1.0")
    Attacker(shared, Role.ADMIN, "*").send("locations.add", exactly=exactly, location="https://mirror.org/digits")
    everywhere = Attacker(shared, Role.PUBLISHER, "*")
    assert "not in the folder of its dataset" in refused(everywhere, "locations.add", exactly=exactly, location="/etc")


def test_the_reservation_of_others_is_not_used_up_or_seen(shared: SqlCatalog, publisher: Attacker) -> None:
    secret = reservation_of(shared, "secret_digits")
    forged = values_of(shared, "lab_digits")["reservations.leave"]["reservation"]
    for dataset in ("lab_digits/plain", "lab_digits", ""):
        for token in (secret.token, "0" * 32):
            held = forged | {"location": secret.location, "token": token, "dataset": dataset}
            for name in ("require", "leave", "note_found", "take_over", "begin_cleaning", "end_cleaning"):
                values = values_of(shared, "lab_digits")[f"reservations.{name}"] | {"reservation": held}
                before = rows_of(shared)
                problem = publisher.problem(f"reservations.{name}", values)
                assert problem["status"] == 403
                assert "elsewhere" not in json.dumps(problem)  # the machine of the holder
                assert rows_of(shared) == before
    version, shards = sample("lab_digits/plain:4.0.0", location="lab_digits/plain/4.0.0")
    details = PublicationDetails(held=(secret, HOLDER))
    refused(publisher, "publish", version=version, shards=shards, promote=None, details=details)


def test_a_publisher_acts_under_its_own_name(shared: SqlCatalog, publisher: Attacker) -> None:
    values = values_of(shared, "lab_digits")
    publisher.send_json("reservations.reserve", values["reservations.reserve"])
    names = {holder.actor for holder in reservation_of(shared, "lab_digits").holders if holder.name == NEWER.name}
    assert names == {publisher.who.name}
    assert "'actor'" in publisher.problem("publish", values["publish"] | {"actor": "ann"})["detail"]
    version, shards = sample("lab_digits/plain:4.0.0", location="lab_digits/plain/4.0.0", published_by="ann")
    origin = Origin(catalog="https://elsewhere", published_at=shared.now(), published_by="ann")
    forged = {"version": version, "shards": shards, "promote": None}
    message = "only an admin may state who published a version elsewhere"
    assert refused(publisher, "publish", **forged, details=PublicationDetails(origin=origin)) == message
    publisher.send("publish", **forged)
    assert shared.find("lab_digits/plain:4.0.0").published_by == publisher.who.name


def test_a_publisher_does_not_choose_the_data_directory(sqlite_template: Any, tmp_path: Any) -> None:
    import shutil

    from registry.catalog import open_catalog

    with open_catalog(shutil.copy(sqlite_template, tmp_path / "new.db")) as catalog:
        attacker = Attacker(catalog, Role.PUBLISHER, "*")  # type: ignore[arg-type]
        version, shards = sample("lab_digits:1.0.0")
        details = PublicationDetails(data_dir=DataDirectory(recorded="/etc", place="/etc"))
        values = {"version": version, "shards": shards, "promote": None}
        assert refused(attacker, "publish", **values, details=details) == "only an admin may set the data directory"
        attacker.send("publish", **values)
        assert catalog.locations.data_dir() is None


def test_only_a_maintainer_promotes_in_a_protected_dataset(
    shared: SqlCatalog, publisher: Attacker, admin: Attacker
) -> None:
    reference = Reference.parse("lab_digits/plain:1.0.0")
    for dataset in ("lab_digits", "lab_digits/plain", None, "secret_digits"):
        scope = None if dataset is None else Reference.parse(dataset)
        shared.configs.set_protection(scope, protect=True, actor="root")
        if dataset != "secret_digits":
            refusal = refused(publisher, "lifecycle.promote", reference=reference)
            assert refusal.startswith("lab_digits is protected, so this needs the role maintainer")
            for patterns in (("lab_*",), ("other_*",)):
                maintainer = Attacker(shared, Role.MAINTAINER, *patterns)
                if patterns == ("lab_*",):
                    maintainer.send("lifecycle.promote", reference=reference, dry_run=True)
                else:
                    assert "it would change lab_digits" in refused(maintainer, "lifecycle.promote", reference=reference)
            admin.send("lifecycle.promote", reference=reference, dry_run=True)
            version, shards = sample("lab_digits/plain:4.0.0", location="lab_digits/plain/4.0.0")
            before = rows_of(shared)
            values = {"version": version, "shards": shards}
            forced = {name: codec(kind_of(CALLS["publish"].sent[name])).dump(value) for name, value in values.items()}
            assert publisher.problem("publish", forced | {"promote": True})["title"] == "ProtectedError"
            assert rows_of(shared) == before
        else:  # whether the dataset of others is protected is not told
            secret = Reference.parse("secret_digits/plain:1.0.0")
            assert refused(publisher, "lifecycle.promote", reference=secret).startswith("it would change secret_digits")
        shared.configs.set_protection(scope, protect=False, actor="root")


def test_a_former_name_gives_no_rights(shared: SqlCatalog, publisher: Attacker, reader: Attacker) -> None:
    publish(shared, "lab_old:1.0.0", content="old")
    shared.aliases.set("best", Reference.parse("lab_old:1.0.0"), expect=None, message="", actor="ann")
    publish(shared, "other_old:1.0.0", content="older")
    shared.rename("lab_old", "secret_new", actor="root")
    shared.rename("other_old", "lab_new", actor="root")
    hidden = ["find", "find_at", "standing", "versions", "configs.list", "aliases.list"]
    for name in hidden:
        values = values_of(shared, "lab_digits")[name]
        of = {
            part: value.replace("lab_digits/plain:1.1.0", "lab_digits").replace("lab_digits", "{}")
            if isinstance(value, str)
            else value
            for part, value in values.items()
        }
        answers = [
            reader.problem(name, {part: str(value).format(dataset) for part, value in of.items()})
            for dataset in ("lab_old", "lab_none")
        ]
        assert json.dumps(answers[0]).replace("lab_old", "") == json.dumps(answers[1]).replace("lab_none", ""), name
    assert reader.send("find", reference="other_old")["name"] == "lab_new"
    text = json.dumps(reader.send("log.page", event_filter=EventFilter()))
    assert "other_old" in text
    assert "lab_old" not in text
    assert "secret" not in text
    version, shards = sample("lab_old:2.0.0")
    refused(publisher, "publish", version=version, shards=shards, promote=None)
    refused(publisher, "aliases.set", name="x", reference=Reference.parse("lab_old"), expect=None, message="")
    refused(publisher, "lifecycle.yank", reference=Reference.parse("lab_old:1.0.0"), reason="x")


def test_an_admin_of_some_datasets_renames_only_among_them(shared: SqlCatalog, admin: Attacker) -> None:
    publish(shared, "lab_a:1.0.0", content="a")
    answers = [refused(admin, "rename", name="lab_a", after=f"{name}_digits") for name in ("secret", "absent")]
    assert answers[0].replace("secret", "absent") == answers[1]
    admin.send("rename", name="lab_a", after="lab_b")


def test_nobody_sees_the_splits_of_others_by_their_numbers(
    shared: SqlCatalog, reader: Attacker, publisher: Attacker
) -> None:
    secret = split_of(shared, Reference.parse("secret_digits/plain:1.1.0"))
    assert secret != 999_999
    for name in ("shards.lengths_between", "shards.lengths_at", "shards.empty_between", "shards.version_of"):
        values = values_of(shared, "lab_digits")[name]
        answers = [json.dumps(reader.problem(name, values | {"split_id": number})) for number in (secret, 999_999)]
        assert answers[0].replace(f"split {secret} ", "split 999999 ") == answers[1]
    values = values_of(shared, "lab_digits")["publish"]
    texts = []
    for number in (secret, 999_999):
        lengths = {"split_id": number, "name": "train", "num_shards": 3, "num_examples": 7}
        values["version"]["splits"][0]["shard_lengths"] = lengths
        before = rows_of(shared)
        texts.append(json.dumps(publisher.problem("publish", values)).replace(f"split {number} ", "split N "))
        assert rows_of(shared) == before
    assert texts[0] == texts[1]
    assert "secret" not in texts[0]


def test_a_search_is_no_oracle_for_the_words_of_others(shared: SqlCatalog, reader: Attacker) -> None:
    # Hits of datasets of others come first, and would take the place of those that the token covers.
    for number in range(3):
        publish(shared, f"a{number}_about:1.0.0", content=str(number))
    hits = reader.send("search", text="about", limit=1)
    assert [hit["name"] for hit in hits] == ["lab_digits"]
    said = {reader.send("explain_no_hits", text=text) for text in ("secret_digits", "absent", "digit")}
    assert said == {"No dataset that this token can read matches."}


def test_a_token_for_one_config_sees_and_changes_nothing_of_the_others(shared: SqlCatalog) -> None:
    reader = Attacker(shared, Role.READER, "lab_digits/small", "lab_digits/new*")
    for name, key in (("configs.list", "name"), ("aliases.list", "dataset")):
        assert "plain" not in json.dumps(reader.send(name, **{key: "lab_digits"}))
    assert "plain" not in json.dumps(reader.send("log.page", event_filter=EventFilter(dataset="lab_digits")))
    producers = reader.send("producers", name="lab_digits", config="newer")
    assert [reference for reference, _ in producers] == ["lab_digits/small:1.0.0"]
    texts = [
        json.dumps(reader.problem("find", {"reference": f"{dataset}/new"}))
        .replace(f"'{dataset}'", "'DATASET'")
        .replace(f'"{dataset}"', '"DATASET"')
        for dataset in ("lab_digits", "absent")
    ]
    assert texts[0] == texts[1]
    with pytest.raises(DatasetNotFoundError):
        reader.send("find", reference="lab_digits")  # whose default config is of others
    moment = shared.now()
    shared.configs.set_default("lab_digits", "small", actor="root")
    for name in ("find_at", "standing", "versions"):
        key = "reference" if name == "find_at" else "name"
        at = "moment" if name == "find_at" else "at"
        text = reader.text(name, {key: "lab_digits", at: moment.isoformat()})
        assert "plain" not in text
    admin = Attacker(shared, Role.ADMIN, "lab_digits/small")
    version, shards = sample("lab_digits/small:2.0.0", location="lab_digits/small/2.0.0")
    values = {"version": version, "shards": shards, "promote": None}
    for name, changes in (
        ("rename", {"name": "lab_digits", "after": "lab_other"}),
        ("configs.set_default", {"name": "lab_digits", "config": "small"}),
        ("configs.set_protection", {"dataset": Reference.parse("lab_digits"), "protect": True}),
        ("publish", values | {"default_config": True}),
    ):
        assert "it would change lab_digits, and" in refused(admin, name, **changes)
    stolen, _ = sample("lab_digits/small:2.0.0", location="lab_digits/plain/1.1.0")
    refused(admin, "publish", **values | {"version": stolen})
    admin.send("publish", **values)


def test_the_source_of_another_config_is_not_told(shared: SqlCatalog) -> None:
    version, shards = sample("lab_c4/en:1.0.0")
    producer = Producer(action="add", kind="csv", place="/home/bob/private.csv")
    shared.publish(
        version, shards, promote=True, actor="bob", details=PublicationDetails(producer=producer, name_use="given")
    )
    attacker = Attacker(shared, Role.PUBLISHER, "lab_c4/de")
    version, shards = sample("lab_c4/de:1.0.0", location="lab_c4/de/1.0.0")
    details = PublicationDetails(producer=Producer(action="add", kind="csv", place="/x"), name_use="derived")
    with pytest.raises(RegistryError) as info:
        attacker.send("publish", version=version, shards=shards, promote=True, details=details)
    assert "private" not in json.dumps(dump_error(info.value, request_id="1"))


def test_capital_letters_give_no_rights(shared: SqlCatalog) -> None:
    """``MNIST`` and ``mnist`` are two datasets, and people who write MNIST mean the second one."""
    reader = Attacker(shared, Role.READER, "secret_digits2", "SECRET_DIGITS", "Secret*")
    for name in ("SECRET_DIGITS", "SecretDigits", "Secret_digits"):
        for call in ("standing", "versions", "configs.list", "find"):
            problem = reader.problem(call, {"reference" if call == "find" else "name": name})
            assert problem["title"] == "DatasetNotFoundError"
        for call, values in (("aliases.list", {"dataset": name}), ("log.page", {"event_filter": {"dataset": name}})):
            assert "secret_digits" not in reader.text(call, values)
    guarded = GuardedCatalog(shared, reader.who)
    with pytest.raises(DatasetNotFoundError):
        guarded.find("SecretDigits")


def test_a_page_of_the_log_is_full_whoever_reads_it(shared: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.server.rights._PAGE", 3)
    reader = Attacker(shared, Role.READER, "lab_*")
    everything = shared.log.page(EventFilter())
    mine = [event.id for event in everything if not event.dataset.startswith("secret")]
    assert 10 < len(mine) < len(everything)
    for limit in (1, 2, 5, 1000):
        read: list[int] = []
        while page := reader.send("log.page", event_filter=EventFilter(), after=read[-1] if read else 0, limit=limit):
            read += [event["id"] for event in page]
        assert read == mine
    for newest in (1, 2, 5, 1000):
        page = reader.send("log.page", event_filter=EventFilter(), newest=newest)
        assert [event["id"] for event in page] == mine[-newest:]
        page = reader.send("log.page", event_filter=EventFilter(), newest=newest, limit=2)
        assert [event["id"] for event in page] == mine[-newest:][:2]


def test_an_error_at_a_moment_before_a_dataset_says_so(shared: SqlCatalog, reader: Attacker) -> None:
    moment = shared.now() - timedelta(days=9)
    values = {"reference": "lab_digits", "moment": moment.isoformat()}
    assert "was not in the catalog at" in reader.problem("find_at", values)["detail"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_that_has_no_utc_is_refused(reader: Attacker, moment: str) -> None:
    problem = reader.problem("configs.protection", {"name": "lab_digits", "config": None, "at": moment})
    assert (problem["status"], "at must be a moment" in problem["detail"]) == (400, True)
