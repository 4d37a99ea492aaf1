"""What GOCDB's programmatic interface answers, read into values (clients contract B9).

What is missing in an element is an empty text here: whoever needs it says so, for that endpoint alone (A24).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ams.core.errors import ServiceFailed

T = TypeVar("T")

_NEXT = "./meta/link[@rel='next']"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A service on a host, as a site has registered it; every field may be empty."""

    host: str
    service_type: str
    site: str
    dn: str = ""
    """The host certificate's subject, in the form with slashes."""
    in_production: str = ""
    """`Y` or `N`."""
    primary_key: str = ""

    def __str__(self) -> str:
        """Write it as people find it again in GOCDB."""
        return f"{self.host or self.primary_key or '?'} ({self.service_type or '?'}, {self.site or '?'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Who runs endpoints; every field may be empty."""

    name: str
    email: str = ""
    infrastructure: str = ""
    """`Production` or `Test`."""
    certification: str = ""
    """`Certified`, `Uncertified`, `Candidate`, `Suspended` or `Closed`."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One answer."""

    items: Sequence[T]
    next: str
    """Address of the next page, perhaps relative; empty on the last one."""


def endpoints(body: bytes) -> Page[Endpoint]:
    """Read a page of `get_service_endpoint`; raise `ServiceFailed` for what is none."""
    return _page(body, "SERVICE_ENDPOINT", _endpoint)


def sites(body: bytes) -> Page[Site]:
    """Read a page of `get_site`; raise `ServiceFailed` for what is none."""
    return _page(body, "SITE", _site)


def _page(body: bytes, tag: str, read: Callable[[Element], T]) -> Page[T]:
    try:
        root = fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError):  # the last two: of encodings
        raise ServiceFailed("what came is not XML as GOCDB writes it") from None
    if root.tag != "results":  # a request that GOCDB does not like gets <error> and 200
        said = " ".join((root.text or "").split())[:200]
        raise ServiceFailed(f"GOCDB answered <{root.tag[:40]}>{f': {said}' if said else ''}")
    link = root.find(_NEXT)
    return Page([read(element) for element in root.iterfind(tag)], "" if link is None else link.get("href", "").strip())


def _endpoint(element: Element) -> Endpoint:
    return Endpoint(
        host=_text(element, "HOSTNAME"),
        service_type=_text(element, "SERVICE_TYPE"),
        site=_text(element, "SITENAME"),
        dn=_text(element, "HOSTDN"),
        in_production=_text(element, "IN_PRODUCTION"),
        primary_key=_text(element, "PRIMARY_KEY") or element.get("PRIMARY_KEY", ""),
    )


def _site(element: Element) -> Site:
    return Site(
        name=_text(element, "SHORT_NAME") or element.get("NAME", ""),
        email=_text(element, "CONTACT_EMAIL"),
        infrastructure=_text(element, "PRODUCTION_INFRASTRUCTURE"),
        certification=_text(element, "CERTIFICATION_STATUS"),
    )


def _text(element: Element, tag: str) -> str:
    return re.sub(r"[\r\n\t]+", " ", element.findtext(tag) or "").strip()
