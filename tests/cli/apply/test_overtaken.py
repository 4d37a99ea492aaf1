"""Applying while somebody else does: nobody fails, and what is declared is there at the end."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ams.cli.apply import KeptTokens
from ams.client.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from ams.client.wire import Call
from ams.core.errors import BadSettings
from ams.provisioning.carrying_out import ROUNDS, carry_out
from ams.provisioning.declared import Change, Key, Kind, Step
from tests.cli.apply.conftest import Files

NUMBERS = range(5)
DECLARED = "projects:\n  PROJECT:\n    retention: 30d\n    members:\n" + "".join(
    f"      PROJECT-m{number}: [publisher]\n" for number in NUMBERS
)
DECLARED += "    schemas:\n      reading: {type: json, schema: {type: object}}\n    topics:\n"
DECLARED += "".join(
    f"      t{number}: {{schema: reading, retention: 12h, access: [PROJECT-m1]}}\n" for number in NUMBERS
)
DECLARED += "    subscriptions:\n" + "".join(
    f"      s{number}: {{topic: t{number}, ackDeadline: 60}}\n" for number in NUMBERS
)

TOPIC = Step(Change.ADD, Key(Kind.TOPIC, "p", "t"), {"access": ("m",)})
MEMBER = Step(Change.ADD, Key(Kind.MEMBER, "p", "m"), {"roles": ("publisher",)})
TAKEN = AlreadyExists("Topic already exists", 409)
GONE = Step(Change.REMOVE, Key(Kind.TOPIC, "p", "old"), {})


def test_two_processes_that_apply_the_same_at_once_both_succeed(
    files: Files, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file.yaml").write_text(files.named(DECLARED))
    command = [sys.executable, "-m", "ams.cli.main", "apply", "-f", "file.yaml", "--yes"]
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]

    said = [each.communicate(timeout=60)[1] for each in both]

    assert [each.returncode for each in both] == [0, 0], said
    assert files.apply(DECLARED).stdout == "nothing to do\n"


class Service:
    """Refuses calls whose method or path ends so, and remembers the rest."""

    def __init__(self, refused: dict[str, Exception]) -> None:
        self.refused = refused
        self.done: list[str] = []

    def __call__(self, call: Call[Any]) -> None:
        place = f"{call.method} {call.path}"
        for part, error in self.refused.items():
            if place.startswith(part) or place.endswith(part):
                raise error
        self.done.append(place)


def test_what_somebody_else_made_does_not_end_it_and_what_differs_then_is_done() -> None:
    said: list[str] = []
    service = Service({"PUT": TAKEN, "DELETE": NotFound("Topic doesn't exist", 404)})
    altered = Step(Change.ALTER, TOPIC.key, TOPIC.fields)
    plans = iter([[altered], []])

    carry_out([TOPIC, GONE], service, KeptTokens(None), lambda: next(plans), said.append)

    assert service.done == ["POST /v1/projects/p/topics/t:modifyAcl"]
    assert said == [
        "done by somebody else: + topic p/t",
        "done by somebody else: - topic p/old",
        "done: ~ topic p/t",
    ]


def test_who_is_a_member_already_does_not_end_it() -> None:
    service = Service({"m:add": Conflict("User is already a member of the project", 409)})

    carry_out([MEMBER], service, KeptTokens(None), list, print)

    assert service.done == []


def test_other_errors_end_it() -> None:
    said: list[str] = []
    with pytest.raises(InvalidInput):
        carry_out([TOPIC, GONE], Service({"PUT": InvalidInput("bad", 400)}), KeptTokens(None), list, said.append)

    assert said == ["not done: + topic p/t", "not done: - topic p/old"]


def test_it_is_given_up_when_somebody_else_never_ends() -> None:
    plans = 0

    def planned() -> list[Step]:
        nonlocal plans
        plans += 1
        return [TOPIC]

    with pytest.raises(BadSettings, match="somebody else"):
        carry_out([TOPIC], Service({"PUT": TAKEN}), KeptTokens(None), planned, print)

    assert plans == ROUNDS
