import inspect
import json
from dataclasses import dataclass
from typing import Annotated

import pytest

from ams.cli.arguments import option
from ams.cli.command import OptionSet, Session, table, with_options
from tests.cli.conftest import Ams


@pytest.fixture
def topics(ams: Ams, project: str) -> list[str]:
    """Make five topics; return their names, newest first."""
    names = [f"t{number}" for number in range(5)]
    for name in names:
        assert ams("topics", "create", name).returncode == 0
    return names[::-1]


def listed(text: str) -> list[str]:
    return [each["name"].rpartition("/")[2] for each in json.loads(text)["topics"]]


def test_a_page_says_how_to_get_the_next(ams: Ams, topics: list[str]) -> None:
    first = ams("topics", "list", "--page-size", "3")
    token = first.stderr.split()[-1]

    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == topics[:3]
    assert first.stderr == f"there is more: --page-token {token}\n"
    second = ams("topics", "list", "--page-size", "3", "--page-token", token, "-o", "json")
    assert listed(second.stdout) == topics[3:]
    assert second.stderr == ""


@pytest.mark.parametrize("size", [[], ["--page-size", "2"]])
def test_all_pages_are_put_together(ams: Ams, topics: list[str], size: list[str]) -> None:
    ran = ams("topics", "list", "--all", *size, "-o", "json")

    assert listed(ran.stdout) == topics
    assert json.loads(ran.stdout)["nextPageToken"] == ""


def test_other_lists_have_pages_too(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    for name in ("a", "b", "c"):
        ams("members", "create", f"{project}-{name}")
        ams("subs", "create", name, "--topic", "jobs")

    for command in (["subs", "list"], ["members", "list"], ["users", "list", "--member-of", project]):
        found = ams.json(*command, "--all", "--page-size", "2")
        [items] = [value for value in found.values() if isinstance(value, list)]
        assert [each["name"][-1] for each in items] == ["c", "b", "a"]
        assert found["totalSize"] == 3


@dataclass(frozen=True)
class Shade(OptionSet):
    """Options that a command of the tests takes as one."""

    light: Annotated[int, option("How light.")] = 5
    colour: Annotated[str, option("Which colour.")] = "green"


def test_sets_of_options_become_options_in_their_place_and_those_of_the_session_come_last() -> None:
    def paint(session: Session, *, wall: str, shade: Shade, quick: bool = False) -> None:
        """Take two sets of options."""

    names = list(inspect.signature(with_options(paint)).parameters)

    assert names[:4] == ["wall", "light", "colour", "quick"]
    assert (names[4], names[-1]) == ("endpoint", "output")


def test_a_set_of_options_is_given_as_one_value() -> None:
    painted: list[Shade] = []

    def paint(shade: Shade) -> None:
        painted.append(shade)

    with_options(paint)(light=7, colour="red")

    assert painted == [Shade(7, "red")]


def test_a_table_shows_attributes_and_what_is_made_of_items() -> None:
    shown = table({"LIGHT": lambda each: f"{each.light}%", "COLOUR": "colour"}, [Shade(), Shade(10, "red")])

    assert shown.splitlines() == ["LIGHT  COLOUR", "5%     green", "10%    red"]
