"""A GOCDB for tests: its lists of endpoints and sites, and a server over HTTP or HTTPS."""

import contextlib
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from ams.provisioning.endpoints import ServedEndpoint, judge
from ams.provisioning.gocdb import Endpoint, Site
from tests.support.http_server import QuietHandler, http_server

APEL = "gLite-APEL"
CLOUD = "eu.egi.cloud.accounting"


def endpoint(host: str, **said: str) -> Endpoint:
    usual = {"service_type": APEL, "site": "SITE-A", "dn": f"/C=GR/O=Example/CN={host}", "in_production": "Y"}
    return Endpoint(host=host, **{"primary_key": f"{len(host)}G0", **usual, **said})


def site(name: str = "SITE-A", **said: str) -> Site:
    usual = {"email": "grid@example.org", "infrastructure": "Production", "certification": "Certified"}
    return Site(name=name, **{**usual, **said})


def expected_endpoints(*listed: Endpoint, own_topics: bool = False) -> list[ServedEndpoint]:
    """Return the expected endpoints of sites in good order."""
    return judge(listed, lambda name: site(name), own_topics=own_topics).served


def results(items: Iterable[str], *, following: str = "") -> bytes:
    meta = f'<meta><link rel="self" href="x"/><link rel="next" href="{escape(following)}"/></meta>' if following else ""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<results>{meta}{"".join(items)}</results>\n'.encode()


def endpoint_xml(each: Endpoint) -> str:
    values = {
        "PRIMARY_KEY": each.primary_key, "HOSTNAME": each.host, "HOSTDN": each.dn, "SERVICE_TYPE": each.service_type,
        "IN_PRODUCTION": each.in_production, "NODE_MONITORED": "Y", "SITENAME": each.site,
    }  # fmt: skip
    return f'<SERVICE_ENDPOINT PRIMARY_KEY="{each.primary_key}">{_tags(values)}</SERVICE_ENDPOINT>'


def site_xml(each: Site) -> str:
    values = {
        "SHORT_NAME": each.name, "CONTACT_EMAIL": each.email, "PRODUCTION_INFRASTRUCTURE": each.infrastructure,
        "CERTIFICATION_STATUS": each.certification,
    }  # fmt: skip
    return f'<SITE ID="1" NAME="{each.name}">{_tags(values)}</SITE>'


def endpoints_xml(*listed: Endpoint) -> bytes:
    return results(map(endpoint_xml, listed))


def sites_xml(*listed: Site) -> bytes:
    return results(map(site_xml, listed))


def _tags(values: dict[str, str]) -> str:
    return "".join(f"<{tag}>{escape(value)}</{tag}>" for tag, value in values.items() if value)


@dataclass
class Gocdb:
    """Answers of the GOCDB, bodies or statuses by query; and the requests it got."""

    url: str = ""
    answers: dict[str, bytes | int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def feed_url(self) -> str:
        return f"{self.url}?method=get_service_endpoint&service_type={{{{service-type}}}}"

    def answer(self, query: str) -> bytes | int:
        self.asked.append(query)
        values = {name: each[0] for name, each in parse_qs(query).items()}
        key = values.get("page") or values.get("sitename") or values.get("service_type") or values.get("method", "")
        return self.answers.get(key, 404)


@contextlib.contextmanager
def gocdb(tls: ssl.SSLContext | None = None) -> Iterator[Gocdb]:
    state = Gocdb()

    class Handler(QuietHandler):
        disable_nagle_algorithm = True

        def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
            found = state.answer(urlsplit(self.path).query)
            status, body = (200, found) if isinstance(found, bytes) else (found, b"no")
            self.reply(status, body)

    with http_server(Handler, tls) as url:
        state.url = url.replace("127.0.0.1", "localhost") + "/gocdbpi/public/"
        yield state
