"""Steps that cannot be done, and what is done of the others all the same (A24)."""

import json
from types import SimpleNamespace
from typing import Any

from ams.client import wire
from ams.client.errors import InvalidInput
from ams.client.wire import Call
from ams.provisioning.carrying_out import CarryingOut
from ams.provisioning.plan import Allow, Join, Kind
from ams.provisioning.state import Place
from tests.provisioning.simulated import EMPTY


class Ams:
    """An AMS that takes all users but one, and keeps one access list."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.listed: list[str] = []

    def __call__(self, call: Call[Any], /) -> Any:
        if call.path.endswith(f"/members/{self.refused}"):
            raise InvalidInput("no")
        if call.path.endswith(":modifyAcl"):
            self.listed = json.loads(call.body or b"")["authorized_users"]
            return None
        if call.path.endswith(":acl"):
            return wire.Acl(authorized_users=list(self.listed))
        return SimpleNamespace(uuid="u")


def test_a24_who_could_not_join_is_kept_off_the_list_that_the_others_get_on() -> None:
    ams = Ams(refused="bad")
    steps = [
        Join(endpoint="one", user="bad"),
        Join(endpoint="two", user="good"),
        Allow(kind=Kind.TOPIC, name="shared", users=("bad", "good")),
    ]

    outcome = CarryingOut(ams, ams, Place("p", "ams", "u", "h"), EMPTY, "publisher", lambda step: None).run(steps)

    assert ams.listed == ["good"]
    assert [each.step for each in outcome.failed] == steps[:1]
    assert outcome.done == steps[1:]
