"""The reference read both ways, by MongoDB and Kafka and by its API, gives the same but for what its API does not show.

A day with dirt of every kind, before it the original where it can be built, and else the demo's stand-in.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pymongo
import pytest

from ams.migrate.converting import Converted, MovedTopic
from ams.migrate.sources import Place, Source, opened
from ams.migrate.writing import plan
from demo.migrate.day import Day, Size, made_up
from demo.migrate.filling import DATABASE, write_documents, write_messages
from demo.migrate.original import CannotBuild, OldSide, program
from demo.migrate.site import Pushed
from tests.support import marks

pytestmark = pytest.mark.kafka

SIZE = Size(users=30, projects=6, topics=20, messages=4_000)
AS_LISTS, IN_JSON, WITH_NEWLINE = 7, 11, 17
"""Kinds of records that only who reads Kafka can read, by their offset modulo 89."""


class Old(NamedTuple):
    """The old side, and what it was filled with."""

    side: OldSide
    day: Day

    @asynccontextmanager
    async def by_the_stores(self) -> AsyncIterator[Source]:
        where = self.side.address
        async with opened(Place(mongodb=where.mongodb, database=DATABASE, kafka=where.kafka)) as source:
            yield source

    @asynccontextmanager
    async def by_the_api(self) -> AsyncIterator[Source]:
        place = Place(api=self.side.address.url, token=self.day.admin_token, ca=str(self.side.certificate))
        async with opened(place) as source:
            yield source


class Sources(NamedTuple):
    """What both ways gave."""

    stores: Converted
    api: Converted
    messages: Mapping[str, tuple[Mapping[int, Any], Mapping[int, Any]]]
    """Of each topic, by its name with its project's, by offset; first those of the stores."""


def is_original() -> bool:
    try:
        program()
    except CannotBuild:
        return False
    return True


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    marks.require("kafka")
    with OldSide(tmp_path / "old", is_original=is_original()) as side:
        day = made_up(SIZE, Pushed("https://receiver.example.org/in", "hash", "header"))
        write_documents(day, side.address.mongodb)
        asyncio.run(write_messages(day, side.address.kafka))
        side.start_api()
        yield Old(side, day)


async def read(old: Old) -> Sources:
    """Read by the stores first: asking the API for offsets changes some."""
    async with old.by_the_stores() as stores, old.by_the_api() as api:
        first = plan(await stores.documents(), stores.messages).found
        second = plan(await api.documents(), api.messages).found
        topics = {place(each): each for each in second.topics}
        messages = {
            place(each): (await messages_of(stores, each), await messages_of(api, topics[place(each)]))
            for each in first.topics
            if place(each) in topics
        }
        return Sources(first, second, messages)


def place(topic: MovedTopic) -> str:
    return f"{topic.line.project}/{topic.line.name}"


async def messages_of(source: Source, topic: MovedTopic) -> dict[int, Any]:
    batches = source.messages.batches(topic.kafka, topic.bounds.first, topic.bounds.end)
    return {each.offset: each async for batch in batches for each in batch}


def lines(each: Any, *left_out: str) -> dict[str, Any]:
    """Return a line as it is compared: dates in whole seconds, and without these fields."""
    found = msgspec.to_builtins(each)
    for name in ("created_on", "modified_on", "registered_at", "modified_at"):
        if found.get(name):
            found[name] //= 1000
    return {name: value for name, value in found.items() if name not in left_out}


def by_name(found: list[Any], *left_out: str) -> dict[str, Any]:
    return {f"{getattr(each, 'project', '')}/{each.name}": lines(each, *left_out) for each in found}


def users_and_who_is_a_member_of_what_are_the_same(both: Sources, old: Old) -> None:
    assert by_name(both.api.users) == by_name(both.stores.users)
    assert {(each.user, each.project, each.roles) for each in both.api.memberships} == {
        (each.user, each.project, each.roles) for each in both.stores.memberships
    }


def addressable(both: Sources, old: Old) -> set[str]:
    """Return projects that a request can name, and whose name no other has."""
    names = [each["name"] for each in old.day.collections["projects"]]
    return {each for each in names if names.count(each) == 1 and " " not in each}


def projects_and_their_days_are_the_same_but_for_uuids(both: Sources, old: Old) -> None:
    names = {f"/{each}" for each in addressable(both, old)}
    stores, api = by_name(both.stores.projects, "id"), by_name(both.api.projects, "id")

    assert api.keys() == stores.keys()
    assert {name: api[name] for name in names} == {name: stores[name] for name in names}


def known(found: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: each for name, each in found.items() if each["project"] in names}


def topics_are_the_same_with_schemas_lists_and_counters(both: Sources, old: Old) -> None:
    names, first = addressable(both, old), old.day.collections["projects"][0]["name"]
    second, dateless = f"{first}/topic-0", {f"{first}/of-2018", f"{first}/of_2018"}
    infinite = {f"EGI-{13 % (SIZE.projects - 1)}/topic-13"}
    stores, api = (
        known(by_name([each.line for each in found.topics], "id", "retention", "tally"), names)
        for found in (both.stores, both.api)
    )

    assert api.keys() == stores.keys()
    for name, each in api.items():
        unlike = {key for key in each.keys() | stores[name].keys() if each.get(key) != stores[name].get(key)}
        assert unlike <= (
            {"authorized", "days", "created_on"} if name == second else {"days"} if name in infinite
            else {"created_on", "days"} if name in dateless else set()
        )  # fmt: skip
    counted = [
        {place(each): (each.line.tally.messages, each.line.tally.bytes) for each in found.topics if each.line.tally}
        for found in (both.stores, both.api)
    ]
    assert all(counted[1][name] == counted[0][name] for name in api.keys() - infinite)


def subscriptions_are_the_same_with_push_and_places(both: Sources, old: Old) -> None:
    names, differing = addressable(both, old), ("id", "tally", "lost")
    stores = known(by_name(both.stores.subscriptions, *differing), names)
    api = known(by_name(both.api.subscriptions, *differing), names)

    assert api.keys() == stores.keys()
    twice = {name for name in api if name.endswith("/beyond")}
    assert {name: api[name] for name in api.keys() - twice} == {name: stores[name] for name in api.keys() - twice}


def registrations_and_schemas_are_the_same(both: Sources, old: Old) -> None:
    names = addressable(both, old)
    assert by_name(both.api.registrations) == by_name(both.stores.registrations)
    stores, api = ([each for each in found.schemas if each.project in names] for found in (both.stores, both.api))
    assert by_name(api, "created_on", "revisions") == by_name(stores, "created_on", "revisions")
    said = [{each.id: msgspec.json.decode(each.revisions[0].payload) for each in found} for found in (stores, api)]
    assert said[0] == said[1]


def messages_are_the_same_but_for_those_that_the_service_cannot_hand_out(both: Sources, old: Old) -> None:
    missing = set()
    for stores, api in both.messages.values():
        assert api.keys() <= stores.keys()
        assert all(stores[offset] == each for offset, each in api.items())
        missing |= {offset % 89 for offset in stores.keys() - api.keys()}

    assert sum(len(api) for _, api in both.messages.values()) > SIZE.messages * 0.8
    assert missing == {AS_LISTS, IN_JSON, WITH_NEWLINE}


def nothing_is_left_there(both: Sources, old: Old) -> None:
    with pymongo.MongoClient[dict[str, Any]](old.side.address.mongodb) as client:
        assert client[DATABASE].subscriptions.count_documents({"name": {"$regex": "^ams-migrate-"}}) == 0


CHECKS = (
    users_and_who_is_a_member_of_what_are_the_same,
    projects_and_their_days_are_the_same_but_for_uuids,
    topics_are_the_same_with_schemas_lists_and_counters,
    subscriptions_are_the_same_with_push_and_places,
    registrations_and_schemas_are_the_same,
    messages_are_the_same_but_for_those_that_the_service_cannot_hand_out,
    nothing_is_left_there,
)


def test_what_is_read_by_the_api_is_what_is_read_by_the_stores(old: Old) -> None:
    both = asyncio.run(read(old))

    for check in CHECKS:
        check(both, old)
