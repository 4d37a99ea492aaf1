"""Asks GOCDB, or reads a file that holds its answer (clients contract B9).

Server certificates are verified, and our client certificate is sent if there is one. Pages are followed on the same
host only; answers and page counts are limited (A23, A26). A missing part of an element is an empty text: only that
endpoint gets an error (A24).
"""

import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urljoin, urlsplit
from xml.etree.ElementTree import Element, ParseError

import httpx
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ams.client.errors import Unusable
from ams.client.transport import LOOPBACK, proxy_to, trust
from ams.core.errors import BadSettings, ServiceFailed, ServiceTimeout
from ams.core.urls import without_credentials

T = TypeVar("T")
GocdbPage = tuple[Sequence[T], str]  # items, and the address of the next page: perhaps relative, empty on the last one

TYPE, SITE = "{{service-type}}", "{{site}}"  # placeholders in an address
MAX_BYTES = 64 * 1024 * 1024  # of one answer or file; ten times EGI's endpoints
MAX_PAGES = 10_000
CONNECT_SECONDS = 10.0
SILENT_SECONDS = 60.0  # GOCDB makes long answers before it sends the first byte
PAGE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A service on a host, as a site has registered it; every field may be empty, `dn` is in the form with slashes."""

    host: str
    service_type: str
    site: str
    dn: str = ""
    in_production: str = ""
    primary_key: str = ""

    def __str__(self) -> str:
        """Write it as people find it again in GOCDB."""
        return f"{self.host or self.primary_key or '?'} ({self.service_type or '?'}, {self.site or '?'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An operator of endpoints; every field may be empty."""

    name: str
    email: str = ""
    infrastructure: str = ""
    certification: str = ""


def sites_address(endpoints_address: str) -> str:
    """Derive the address of single sites from that of endpoints (contract 14.1)."""
    if "method=" not in endpoints_address or not _is_url(endpoints_address):
        raise BadSettings("the sites are listed elsewhere: say where with --sites")
    return f"{endpoints_address.partition('?')[0]}?method=get_site&sitename={SITE}"


def _is_url(address: str) -> bool:
    return address.startswith(("https://", "http://"))


class Feed(AbstractContextManager["Feed"]):
    """GOCDB, with connections that are kept; use it in a `with` block. Raises `BadSettings` for files of no use.

    Addresses are URLs or files, with `{{service-type}}` and `{{site}}` where one of many is asked for. `ca` is a file
    or folder of certificates to trust instead of the system's; `cert` and `key` are shown.
    """

    def __init__(self, endpoints_at: str, sites_at: str, *, ca: str = "", cert: str = "", key: str = "") -> None:
        for address in (endpoints_at, sites_at):
            if address.startswith("http://") and urlsplit(address).hostname not in LOOPBACK:
                raise BadSettings(f"{_safe_address(address)} would be read without TLS: say https://")
        self._endpoints_at, self._sites_at = endpoints_at, sites_at
        over_tls = any(each.startswith("https://") for each in (endpoints_at, sites_at))
        # Without TLS, trust nothing: reading the system's certificates is slow.
        self._trust = _trust(ca, cert, key) if over_tls or ca or cert else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._clients: dict[str | None, httpx.Client] = {}
        self._pages: dict[str, list[Endpoint]] = {}
        self._sites: dict[str, Site] | None = None
        self._asked_sites: dict[str, Site | ServiceFailed | None] = {}

    def __exit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()

    def endpoints(self, service_type: str) -> list[Endpoint]:
        """Return all endpoints of a type; raise `ServiceFailed` or `ServiceTimeout` if they cannot be had."""
        address = self._endpoints_at.replace(TYPE, quote(service_type, safe=""))
        if address not in self._pages:
            self._pages[address] = list(self._items(address, read_endpoints))
        # An endpoint without a type is reported, not skipped.
        return [each for each in self._pages[address] if each.service_type in (service_type, "")]

    def site(self, name: str) -> Site | None:
        """Return a site, None for one that is not listed; raise `ServiceFailed` or `ServiceTimeout`."""
        if SITE not in self._sites_at:
            if self._sites is None:
                self._sites = {each.name: each for each in self._items(self._sites_at, read_sites)}
            return self._sites.get(name)
        if name not in self._asked_sites:
            try:
                found = list(self._items(self._sites_at.replace(SITE, quote(name, safe="")), read_sites))
                self._asked_sites[name] = next((each for each in found if each.name == name), None)
            except ServiceFailed as error:
                self._asked_sites[name] = error
        answer = self._asked_sites[name]
        if isinstance(answer, ServiceFailed):
            raise answer
        return answer

    def _items(self, address: str, read: Callable[[bytes], GocdbPage[T]]) -> Iterator[T]:
        seen: set[str] = set()
        while address not in seen and len(seen) < MAX_PAGES:
            seen.add(address)
            items, link = read(self._fetch(address) if _is_url(address) else _file(address))
            yield from items
            if not link or not _is_url(address):
                return
            before, address = address, urljoin(address, link)
            if urlsplit(address)[:2] != urlsplit(before)[:2]:  # it must not see our certificate
                raise ServiceFailed(f"the next page of {_safe_address(before)} is on another host")
        raise ServiceFailed(f"the pages of {_safe_address(address)} do not end")

    def _fetch(self, address: str) -> bytes:
        until = time.monotonic() + PAGE_SECONDS
        try:
            with self._client(address).stream("GET", address) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise ServiceFailed(f"{_safe_address(address)} answered {answer.status_code}")
                body = bytearray()
                for piece in answer.iter_bytes(64 * 1024):
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise ServiceFailed(f"the answer of {_safe_address(address)} is larger than {MAX_BYTES} bytes")
                    if time.monotonic() > until:
                        raise ServiceTimeout(f"the answer of {_safe_address(address)} takes too long")
                return bytes(body)
        except httpx.TimeoutException as error:
            raise ServiceTimeout(f"no answer from {_safe_address(address)} in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = "its certificate is not signed by a trusted CA" if "VERIFY_FAILED" in str(error) else str(error)
            raise ServiceFailed(f"cannot read {_safe_address(address)}: {why or type(error).__name__}") from error

    def _client(self, address: str) -> httpx.Client:
        proxy = proxy_to(address)
        if proxy not in self._clients:
            timeout = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
            self._clients[proxy] = httpx.Client(verify=self._trust, timeout=timeout, trust_env=False, proxy=proxy)
        return self._clients[proxy]


def _file(path: str) -> bytes:
    try:
        if os.path.getsize(path) > MAX_BYTES:
            raise ServiceFailed(f"{path} is larger than {MAX_BYTES} bytes")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ServiceFailed(f"{path}: {error.strerror}") from error


def _safe_address(address: str) -> str:
    return without_credentials(address) if _is_url(address) else address


def _trust(ca: str, cert: str, key: str) -> ssl.SSLContext:
    folder = ca if os.path.isdir(ca) else None
    try:
        context = trust("https:", None if folder else ca or None, cert or None, key or None, folder)
    except Unusable as error:
        raise BadSettings(error.message) from error
    assert context is not None  # as it is for https
    return context


def _page(tag: str, read: Callable[[Element], T], body: bytes) -> GocdbPage[T]:
    try:
        root = fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError):  # the last two: of encodings
        raise ServiceFailed("what came is not XML as GOCDB writes it") from None
    if root.tag != "results":  # GOCDB answers bad requests with <error> and 200
        said = " ".join((root.text or "").split())[:200]
        raise ServiceFailed(f"GOCDB answered <{root.tag[:40]}>{f': {said}' if said else ''}")
    link = root.find("./meta/link[@rel='next']")
    items = [read(element) for element in root.iterfind(tag)]
    return items, "" if link is None else link.get("href", "").strip()


def _endpoint(element: Element) -> Endpoint:
    text = partial(_text, element)
    return Endpoint(
        host=text("HOSTNAME"), service_type=text("SERVICE_TYPE"), site=text("SITENAME"), dn=text("HOSTDN"),
        in_production=text("IN_PRODUCTION"), primary_key=text("PRIMARY_KEY") or element.get("PRIMARY_KEY", ""),
    )  # fmt: skip


def _site(element: Element) -> Site:
    text = partial(_text, element)
    return Site(
        name=text("SHORT_NAME") or element.get("NAME", ""), email=text("CONTACT_EMAIL"),
        infrastructure=text("PRODUCTION_INFRASTRUCTURE"), certification=text("CERTIFICATION_STATUS"),
    )  # fmt: skip


def _text(element: Element, tag: str) -> str:
    return re.sub(r"[\r\n\t]+", " ", element.findtext(tag) or "").strip()


read_endpoints, read_sites = partial(_page, "SERVICE_ENDPOINT", _endpoint), partial(_page, "SITE", _site)
"""Read a page of `get_service_endpoint`, or of `get_site`; raise `ServiceFailed` for anything else."""
