"""What AMS and the certificate service hold now, as far as provisioning is concerned."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ams.client import wire
from ams.client.wire import Call, authn
from ams.core.errors import BadSettings

T = TypeVar("T")

_PAGE = 500


class Ask(Protocol):
    """Sends a call and returns its answer; raises a `ClientError`."""

    def __call__(self, call: Call[T], /) -> T:
        """Send it."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where certificates are bound: a host of a service type, and the project of AMS."""

    project: str
    service_type: str
    service_uuid: str
    host: str


@dataclass(frozen=True, slots=True)
class Member:
    """A user of the project."""

    uuid: str
    roles: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    """Those whose access list holds the user."""
    subscriptions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bound:
    """A certificate that is bound."""

    dn: str
    uuid: str
    """Of the user."""


@dataclass(frozen=True, slots=True)
class State:
    """Members and bindings by name; topics; and the topics of subscriptions."""

    members: Mapping[str, Member]
    bindings: Mapping[str, Bound]
    topics: frozenset[str]
    subscriptions: Mapping[str, str]


def find_place(authn_ask: Ask, project: str, service_type: str, host: str, service_uuid: str) -> Place:
    """Look up the service type; raise `BadSettings` if host or uuid are not its own, or a `ClientError`."""
    found = authn_ask(authn.get_service_type(service_type))
    if service_uuid and service_uuid != found.uuid:
        raise BadSettings(f"service type {service_type} has the uuid {found.uuid}, and not {service_uuid}")
    if host not in found.hosts:
        raise BadSettings(f"service type {service_type} has no host {host}, but {', '.join(found.hosts)}")
    return Place(project, service_type, found.uuid, host)


def read_state(ams_ask: Ask, authn_ask: Ask, place: Place) -> State:
    """Ask for all of it; raise a `ClientError`."""
    bound = authn_ask(authn.list_host_bindings(place.service_type, place.host)).bindings
    project = place.project
    subscriptions = _every(ams_ask, lambda token: wire.list_subscriptions(project, page_size=_PAGE, page_token=token))
    topics = _every(ams_ask, lambda token: wire.list_topics(project, page_size=_PAGE, page_token=token))
    users = _every(ams_ask, lambda token: wire.list_members(project, details=True, page_size=_PAGE, page_token=token))
    return State(
        members={user.name: _member(user, project) for page in users for user in page.users},
        bindings={each.name: Bound(each.auth_identifier, each.unique_key) for each in bound if _is_x509(each)},
        topics=frozenset(_short(each.name) for page in topics for each in page.topics),
        subscriptions={_short(each.name): _short(each.topic) for page in subscriptions for each in page.subscriptions},
    )


def _is_x509(binding: authn.Binding) -> bool:
    return binding.auth_type == authn.X509


def _member(user: wire.User, project: str) -> Member:
    here = [each for each in user.projects if each.project == project]
    return Member(
        user.uuid,
        frozenset(role for each in here for role in each.roles),
        frozenset(_short(topic) for each in here for topic in each.topics),
        frozenset(_short(name) for each in here for name in each.subscriptions),
    )


def _every(ask: Ask, call: Callable[[str], Call[Any]]) -> list[Any]:
    pages, token = [], ""
    while True:
        page = ask(call(token))
        pages.append(page)
        token = page.next_page_token
        if not token:
            return pages


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]
