"""Changes an access list that others change too (authn contract 15, A26).

The API can only read a whole list and replace it. So it is read at the last moment, replaced with what was on it then,
and read again: when somebody else's list came in between and ours is gone, it is done again on top of theirs. What
stays possible is that a list read by two at the same moment loses the change of the first of them: another run of
either puts it back.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ams.client import wire
from ams.client.errors import NotFound, Unavailable
from ams.client.wire import Call
from ams.provisioning.plan import Kind
from ams.provisioning.state import Ask

ROUNDS = 5


class _Calls(NamedTuple):
    get: Callable[[str, str], Call[wire.Acl]]
    modify: Callable[[str, str, Sequence[str]], Call[None]]


_CALLS = {
    Kind.TOPIC: _Calls(wire.get_topic_acl, wire.modify_topic_acl),
    Kind.SUBSCRIPTION: _Calls(wire.get_subscription_acl, wire.modify_subscription_acl),
}


def change_list(
    ask: Ask, project: str, kind: Kind, name: str, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> None:
    """Put users on the list, take others off it, and leave all others where they are; raise a `ClientError`.

    `Unavailable` when others replace the list again and again.
    """
    calls = _CALLS[kind]
    for _ in range(ROUNDS):
        there = ask(calls.get(project, name)).authorized_users
        if _is_so(there, add, remove):
            return
        _replace(ask, calls, project, name, _changed(there, add, remove), add)
    if not _is_so(ask(calls.get(project, name)).authorized_users, add, remove):
        raise Unavailable(f"others change the access list of {kind} {name} all the time")


def _is_so(there: Collection[str], add: Collection[str], remove: Collection[str]) -> bool:
    return set(add) <= set(there) and not set(remove) & set(there)


def _changed(there: Sequence[str], add: Collection[str], remove: Collection[str]) -> list[str]:
    return list(dict.fromkeys([*(user for user in there if user not in remove), *add]))


def _replace(ask: Ask, calls: _Calls, project: str, name: str, users: Sequence[str], add: Collection[str]) -> None:
    """Replace the list; one that holds users who have left the project is not taken, so then without those."""
    try:
        ask(calls.modify(project, name, users))
    except NotFound:
        staying = [user for user in users if user in add or _is_member(ask, project, user)]
        if staying == list(users):
            raise
        ask(calls.modify(project, name, staying))


def _is_member(ask: Ask, project: str, user: str) -> bool:
    try:
        ask(wire.get_member(project, user))
    except NotFound:
        return False
    return True
