"""Access lists of a real AMS that somebody else changes in between."""

from collections.abc import Callable
from typing import Any

import pytest

from ams.client import wire
from ams.client.errors import NotFound, Unavailable
from ams.client.wire import Call
from ams.provisioning.carrying_out import LIST_ROUNDS, change_list
from ams.provisioning.declared import Key, Kind
from tests.provisioning.conftest import Project

TOPIC = "shared"


def member(project: Project, name: str) -> str:
    user = f"{name}-{project.name}"
    project.client.call(wire.create_member(project.name, user, ["publisher"]))
    return user


@pytest.fixture
def people(project: Project) -> list[str]:
    project.topic(TOPIC)
    return [member(project, name) for name in ("ours", "other", "third")]


def interrupted(project: Project, after: str, times: int, act: Callable[[], Any]) -> Callable[[Call[Any]], Any]:
    """Ask the service, and let somebody else act each time after a call of this kind was answered."""
    left = [times]

    def ask(call: Call[Any]) -> Any:
        answer = project.client.call(call)
        if call.path.endswith(after) and left[0]:
            left[0] -= 1
            act()
        return answer

    return ask


def replaced(project: Project, *users: str) -> Callable[[], None]:
    return lambda: project.client.call(wire.modify_topic_acl(project.name, TOPIC, users))


def test_a26_somebody_elses_list_that_came_after_ours_gets_our_users_too(project: Project, people: list[str]) -> None:
    ours, other, _ = people
    ask = interrupted(project, ":modifyAcl", 2, replaced(project, other))

    change_list(ask, Key(Kind.PUBLISHERS, project.name, TOPIC), add=[ours])

    assert project.on_list(TOPIC) == sorted([ours, other])


def test_a26_users_of_others_stay_on_the_list(project: Project, people: list[str]) -> None:
    ours, other, third = people
    replaced(project, other, third)()

    change_list(project.client.call, Key(Kind.PUBLISHERS, project.name, TOPIC), add=[ours], remove=[third])

    assert project.on_list(TOPIC) == sorted([ours, other])


def test_a26_a_list_that_others_change_all_the_time_is_told(project: Project, people: list[str]) -> None:
    ours, other, _ = people
    ask = interrupted(project, ":modifyAcl", LIST_ROUNDS, replaced(project, other))

    with pytest.raises(Unavailable):
        change_list(ask, Key(Kind.PUBLISHERS, project.name, TOPIC), add=[ours])


def test_a_list_with_somebody_who_left_the_project_can_still_be_changed(project: Project, people: list[str]) -> None:
    ours, other, third = people
    replaced(project, other, third)()
    project.client.call(wire.remove_member(project.name, third))

    change_list(project.client.call, Key(Kind.PUBLISHERS, project.name, TOPIC), add=[ours])

    assert project.on_list(TOPIC) == sorted([ours, other])
    with pytest.raises(NotFound):
        change_list(project.client.call, Key(Kind.PUBLISHERS, project.name, TOPIC), add=["nobody"])
