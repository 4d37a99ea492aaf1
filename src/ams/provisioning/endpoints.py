"""Which endpoints of a listing are served, why the others are not, and what is made for them is called.

Steps 1 to 5 and 11 of authn contract 14.2; A21, A24. What is wrong with one endpoint is said of that endpoint, and the
others go on.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ams.core.distinguished_names import normalised
from ams.core.errors import ServiceFailed
from ams.core.names import is_name
from ams.provisioning.gocdb import Endpoint, Site

PRODUCTION = "Production"
CERTIFIED = frozenset({"Certified", "Uncertified"})
"""As the reference has it: only candidates, suspended and closed sites are left out."""
SEPARATOR = "---"
_MADE = re.compile(r"(?!-).+?---.+?---.+")

FindSite = Callable[[str], Site | None]


class Reason(StrEnum):
    """Why an endpoint is not served."""

    NO_DN = "no certificate"
    NOT_IN_PRODUCTION = "not in production"
    SITE = "site not in production"
    FAILED = "failed"
    """Something is wrong that should be put right."""

    @property
    def by_rule(self) -> bool:
        """Whether it is as it should be."""
        return self is not Reason.FAILED


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An endpoint that is not served."""

    endpoint: Endpoint
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entitled:
    """What an endpoint is to have."""

    endpoint: Endpoint
    name: str
    """Of its user and binding, unless its certificate is bound already."""
    dn: str
    """In normal form."""
    email: str
    topic: str
    subscription: str = ""
    """Of `cloud-info`; made with the topic. Empty where the topic is everybody's."""


@dataclass(slots=True)
class Judged:
    """All endpoints of a listing."""

    served: list[Entitled] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """What users of all endpoints that are listed would be called, those left out too."""
    topics: set[str] = field(default_factory=set)
    """What topics for themselves would be called, of all endpoints that are listed."""
    dns: set[str] = field(default_factory=set)
    """The certificates of all endpoints that are listed, those left out too."""
    readable: bool = True
    """Whether every endpoint said enough to know which one it is."""


def judge(listed: Iterable[Endpoint], find_site: FindSite, *, email: str = "", own_topics: bool = False) -> Judged:
    """Say of each endpoint what it is to have, or why nothing.

    `email` stands in for that of a site without one; with `own_topics`, an endpoint has a topic and a subscription for
    itself.
    """
    judged = Judged()
    for endpoint in listed:
        _note_listed(endpoint, judged)
        found = _judged(endpoint, find_site, email, own_topics=own_topics)
        if isinstance(found, Entitled):
            judged.served.append(found)
        else:
            judged.left_out.append(found)
    _leave_out_namesakes(judged)
    return judged


def _note_listed(endpoint: Endpoint, judged: Judged) -> None:
    if not (endpoint.host and endpoint.site and endpoint.service_type):
        judged.readable = False
    judged.names.add(user_name(endpoint))
    judged.topics.add(endpoint_topic(endpoint))
    if endpoint.dn:
        try:
            judged.dns.add(normalised(endpoint.dn))
        except ValueError:
            judged.readable = False


def _judged(endpoint: Endpoint, find_site: FindSite, email: str, *, own_topics: bool) -> Entitled | LeftOut:
    missing = _missing(endpoint, own_topics=own_topics)
    if missing:
        return LeftOut(endpoint, Reason.FAILED, f"GOCDB tells no {missing}")
    if not endpoint.dn:
        return LeftOut(endpoint, Reason.NO_DN, "GOCDB tells no HOSTDN")
    if endpoint.in_production != "Y":
        return LeftOut(endpoint, Reason.NOT_IN_PRODUCTION, "the endpoint is not in production")
    try:
        site = find_site(endpoint.site)
    except ServiceFailed as error:
        return LeftOut(endpoint, Reason.FAILED, f"site {endpoint.site}: {error.message}")
    refusal = _refused_site(endpoint, site)
    if refusal or site is None:
        return refusal or LeftOut(endpoint, Reason.FAILED, f"GOCDB lists no site {endpoint.site}")
    return _entitled(endpoint, site.email or email, own_topics=own_topics)


def _missing(endpoint: Endpoint, *, own_topics: bool) -> str:
    needed = {
        "HOSTNAME": endpoint.host,
        "SERVICE_TYPE": endpoint.service_type,
        "SITENAME": endpoint.site,
        "IN_PRODUCTION": endpoint.in_production,
    }
    if own_topics:
        needed["PRIMARY_KEY"] = endpoint.primary_key
    return ", ".join(name for name, value in needed.items() if not value)


def _refused_site(endpoint: Endpoint, site: Site | None) -> LeftOut | None:
    if site is None:
        return None
    if site.infrastructure != PRODUCTION:
        text = f"site {site.name} is of the infrastructure {site.infrastructure or 'none'}"
        return LeftOut(endpoint, Reason.SITE, text)
    if site.certification not in CERTIFIED:
        return LeftOut(endpoint, Reason.SITE, f"site {site.name} is {site.certification or 'not certified'}")
    return None


def _entitled(endpoint: Endpoint, email: str, *, own_topics: bool) -> Entitled | LeftOut:
    try:
        dn = normalised(endpoint.dn)
    except ValueError as error:
        return LeftOut(endpoint, Reason.FAILED, f"HOSTDN {endpoint.dn[:200]!r}: {error}")
    if not dn:
        return LeftOut(endpoint, Reason.FAILED, f"HOSTDN {endpoint.dn[:200]!r} has no attribute that counts")
    name = user_name(endpoint)
    topic = endpoint_topic(endpoint) if own_topics else type_topic(endpoint.service_type)
    for kind, text in (("user", name), ("topic", topic)):
        if not is_name(text):
            return LeftOut(endpoint, Reason.FAILED, f"{text[:300]!r} cannot be the name of a {kind}")
    own = topic if own_topics else ""
    return Entitled(endpoint=endpoint, name=name, dn=dn, email=email, topic=topic, subscription=own)


def _leave_out_namesakes(judged: Judged) -> None:
    """Leave out endpoints of one name and several certificates: each run would give the name to another of them."""
    dns: dict[str, set[str]] = {}
    for each in judged.served:
        dns.setdefault(each.name, set()).add(each.dn)
    judged.left_out += [
        LeftOut(each.endpoint, Reason.FAILED, f"several endpoints with different certificates are called {each.name}")
        for each in judged.served
        if len(dns[each.name]) > 1
    ]
    judged.served = [each for each in judged.served if len(dns[each.name]) == 1]


def user_name(endpoint: Endpoint) -> str:
    """Return how the user of an endpoint, and its binding, are called."""
    return _dashed(SEPARATOR.join((endpoint.service_type, endpoint.host, endpoint.site)))


def type_topic(service_type: str) -> str:
    """Return the topic that all endpoints of a type publish to."""
    return _dashed(service_type)


def endpoint_topic(endpoint: Endpoint) -> str:
    """Return the topic, and the subscription, that an endpoint has for itself."""
    return f"SITE_{_dashed(endpoint.site)}_ENDPOINT_{''.join(endpoint.primary_key.split())}"


def is_endpoints_topic(name: str) -> bool:
    """Whether a topic is called as one that an endpoint has for itself."""
    return name.startswith("SITE_") and "_ENDPOINT_" in name


def is_of_endpoint(name: str) -> bool:
    """Whether a user or binding is called as those that provisioning makes, of whatever type.

    The API lets a project's administrator mark a user by nothing else.
    """
    return _MADE.fullmatch(name) is not None


def is_of_type(name: str, service_type: str) -> bool:
    """Whether a user or binding is called as those that provisioning makes for a type."""
    return is_of_endpoint(name) and name.startswith(_dashed(service_type) + SEPARATOR)


def _dashed(text: str) -> str:
    return text.replace(".", "-")
