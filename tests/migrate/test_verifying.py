"""Holding a service to what it was moved from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.cli.installation import installation
from ams.client import Client
from ams.client.errors import Unreachable
from ams.core.settings import Settings
from ams.migrate.converting import Bounds, Converted
from ams.migrate.side import Side
from ams.migrate.verifying import Difference, Verified, compare_served, compare_stored, verify
from ams.storage.export_format import Membership, Subscription, User
from tests.migrate.moved import Kept, converted, counts, imported, token
from tests.migrate.old import passing
from tests.support.service import LiveService, live_service


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data = imported(converted(users=20, topics=6, messages=10), tmp_path_factory.mktemp("verifying"))
    with live_service(data, "--min-free-bytes", "0", "--reserve-bytes", "0") as running:
        yield running


@pytest.fixture
def found() -> Converted:
    """What the service has, to be changed by a test as if the old side had been another one."""
    return converted(users=20, topics=6, messages=10)


async def quickly(moved: LiveService, found: Converted) -> list[Difference]:
    with Client(moved.base_url, token(0), ca=str(moved.ca)) as client:
        return await compare_served(found, client, str(moved.ca))


async def test_what_was_moved_is_quickly_found_to_be_the_same(moved: LiveService, found: Converted) -> None:
    verified = await quickly(moved, found)
    assert verified == []


async def test_a_quick_look_finds_wrong_tokens_users_and_rights(moved: LiveService, found: Converted) -> None:
    found.users[3].token = "of nobody "
    found.users[4].token = "no\u00e4scii"
    found.users[5].name = "other"
    found.users[6].service_roles = ("admin_viewer",)
    found.memberships[6:7] = [Membership(user="user7", project="project1", roles=("consumer",))]
    found.users.append(User(name="new", token=""))  # it got a token that nobody has yet
    found.memberships += [Membership(user="other", project="project1", roles=("consumer", "publisher"))]
    verified = await quickly(moved, found)

    both = "project1:consumer,publisher"
    assert [each for each in verified if each.what.startswith(("token", "roles"))] == [
        ("token of user user3", "user3", "Unauthorized"),
        ("token of user user4", "user4", "Unauthorized"),
        ("token of user other", "other None", verified[2].new),
        ("roles of user user6", "admin_viewer project0:consumer,publisher", "- project0:consumer,publisher"),
        ("roles of user user7", "- project1:consumer", f"- {both}"),
    ]
    assert verified[2].new.startswith("user5 ")
    assert token(3) not in repr(verified)


async def test_a_quick_look_asks_for_a_subscription_of_each_project(moved: LiveService, found: Converted) -> None:
    for each in found.subscriptions:
        each.offset += 1

    verified = await quickly(moved, found)

    assert {each.what.partition("/")[0] for each in verified} == {
        "subscription project0", "subscription project1",
    }  # fmt: skip
    assert len(verified) == 2


@pytest.mark.long
async def test_topics_and_positions_that_were_stored_otherwise_are_found(found: Converted, tmp_path: Path) -> None:
    data = imported(found, tmp_path)
    same, found = found, converted(users=20, topics=6, messages=10)
    found.topics[0].line.name = "gone"
    ends = {
        1: Bounds(5, 16), 2: Bounds(4, 15, young=5), 3: Bounds(7, 15), 4: Bounds(4, 15, young=4),
        5: Bounds(4, 15, age=1000, young=4),
    }  # fmt: skip
    for number, bounds in ends.items():
        object.__setattr__(found.topics[number], "bounds", bounds)
    found.subscriptions = [
        Subscription(project="project1", name="sub1", topic="topic1", offset=11),
        Subscription(project="project1", name="sub3", topic="topic3", offset=9),
        Subscription(project="project1", name="none", topic="topic3", offset=9),
        Subscription(project="project1", name="none", topic="never", offset=9),
    ]
    settings = Settings.load({"data": str(data), "min_free_bytes": 0, "reserve_bytes": 0}, {}, None, print)
    async with installation(settings) as stored:
        nothing = await compare_stored(same, stored, Kept(same))
        kept = Kept(found)
        differences = await compare_stored(found, stored, kept)
        kept.holes["project0.topic4"] = {4}
        unreadable = await compare_stored(found, stored, kept)

    assert nothing == []
    assert [tuple(each) for each in differences] == [
        ("topic project0/gone", "5 to 15", "is not there"),
        ("topic project1/topic1", "5 to 16", "5 to 15"),
        ("topic project0/topic4", "4 to 15", "5 to 15"),
        ("subscription project1/sub1", "11", "10"),
        ("subscription project1/sub3", "9", "10"),
        ("subscription project1/none", "9", "is not there"),
    ]  # the first of topic5 is too old by now
    assert [each.what for each in unreadable] == [each.what for each in differences if "topic4" not in each.what]


async def test_a_service_that_is_away_is_an_error_and_no_list_of_differences(found: Converted) -> None:
    with Client("http://127.0.0.1:1", token(0), retry=None) as client, pytest.raises(Unreachable):
        await compare_served(found, client, None)


async def wholly(moved: LiveService, found: Converted, kept: Kept, old: str = "") -> Verified:
    with Client(moved.base_url, token(0), ca=str(moved.ca)) as client:
        if not old:
            return await verify(found, kept, client, str(moved.ca))
        async with Side(old, token(0)) as one, Side(moved.base_url, token(0)) as other:
            return await verify(found, kept, client, str(moved.ca), (one, other))


async def test_whole_contents_are_the_same_until_a_message_is_not(moved: LiveService, found: Converted) -> None:
    kept = Kept(found)
    same = await wholly(moved, found, kept)

    assert same == Verified(**counts(found), differences=[])
    kept.changed["project1.topic1"] = {7: "b3RoZXI="}
    found.topics[2].line.name = "gone"
    object.__setattr__(found.topics[3], "bounds", Bounds(4, 15, age=1000, young=5))  # of old age the new one dropped 4
    object.__setattr__(found.topics[4], "bounds", Bounds(4, 15, young=4))
    other = await wholly(moved, found, kept)
    assert [(each.what, each.old.split(",")[0], each.new.split(",")[0]) for each in other.differences] == [
        ("topic project1/topic1", "10 messages", "10 messages"),
        ("topic project0/gone", "5 to 15", "Topic doesn't exist"),
        ("topic project0/topic4", "11 messages", "10 messages"),
    ]


@pytest.mark.long
async def test_both_services_are_asked_by_every_token_for_all_there_is(moved: LiveService, found: Converted) -> None:
    with passing(moved.base_url) as old:
        same = await wholly(moved, found, Kept(found), old.url)

        assert (same.differences, same.answers) == ([], 20 + 2 * 5 + 6 + 6)
        found.renamed = {"project1", "topic2"}  # the old service knows them by other names
        assert (await wholly(moved, found, Kept(found), old.url)).answers == 20 + 5 + 2 + 3
        found.renamed = set()
        old.changes = [
            (b'"description":"of a day"', b'"description":"x"'),
            (b'"name":"user4"', b'"name":"%s"' % token(4).encode()),
        ]
        other = await wholly(moved, found, Kept(found), old.url)
    assert {each.what for each in other.differences} == {
        "token of user user4: name", "projects/project0: description", "projects/project1: description",
        "projects/project0/members?details=true: users[]",
    }  # fmt: skip
    assert token(4) not in repr(other)
