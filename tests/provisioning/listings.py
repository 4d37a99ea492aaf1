"""Endpoints and sites as GOCDB lists them, for tests."""

from collections.abc import Iterable
from xml.sax.saxutils import escape

from ams.provisioning.endpoints import Entitled, judge
from ams.provisioning.gocdb import Endpoint, Site

APEL = "gLite-APEL"
CLOUD = "eu.egi.cloud.accounting"


def endpoint(host: str, **said: str) -> Endpoint:
    """Return an endpoint that is in order, but for what is said."""
    usual = {"service_type": APEL, "site": "SITE-A", "dn": f"/C=GR/O=Example/CN={host}", "in_production": "Y"}
    return Endpoint(host=host, **{"primary_key": f"{len(host)}G0", **usual, **said})


def site(name: str = "SITE-A", **said: str) -> Site:
    usual = {"email": "grid@example.org", "infrastructure": "Production", "certification": "Certified"}
    return Site(name=name, **{**usual, **said})


def served(*listed: Endpoint, own_topics: bool = False) -> list[Entitled]:
    """Return what endpoints of sites that are in order are to have."""
    return judge(listed, lambda name: site(name), own_topics=own_topics).served


def results(items: Iterable[str], *, following: str = "") -> bytes:
    """Write a page as GOCDB does."""
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
