"""Logging in with tokens of an issuer, and with tokens that may do little: `make identity-demo`.

`ams serve` runs beside an OpenID Connect issuer, whose tokens it accepts by a file. Three publish: Alice by a signed
token of the issuer, whose first login makes her a user with the role that her entitlement gives; Carol by an opaque
token, which the issuer is asked about, as the user she is bound to; and a sensor with the official client library
as before, by a named token that is good for publishing to one topic. The issuer changes its keys, and Alice goes on
with a new token. A collector pulls what they published. Then others try, with tokens that are forged, expired, revoked,
or good for something else.
"""

import ssl
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import httpx
from argo_ams_library import AmsException, AmsMessage, ArgoMessagingService

from ams.client import Client, Message, wire
from ams.core.rights import PUBLISH
from demo import service, site
from demo.issuer import ExampleIssuer
from demo.service import Service, trust_of_library
from demo.site import PROJECT, SUBSCRIPTION, TOPIC
from demo.workers import write_secret

OTHER_TOPIC = "alarms"
AUDIENCE = "ams"
ENTITLEMENT = "urn:geant:example.org:group:federation:role=reporter#aai.example.org"
CAROL, SENSOR, COLLECTOR = "carol", "sensor", "collector"
SHORT_LIVED = 1
CHALLENGE = 'Bearer realm="ams"'  # the challenge of every 401 (RFC 6750, 3)
UNKNOWN = "Unauthorized"
ISSUERS = """\
[[issuer]]
name = "example"
url = "{issuer.url}"
audiences = ["{audience}"]
introspect = "opaque"
client_id = "{issuer.client_id}"
client_secret = "{issuer.client_secret}"
create_users = true

[[issuer.roles]]
entitlement = "{entitlement}"
project = "{project}"
roles = ["publisher"]
"""
"""File of issuers and of identity mappings."""


class Tokens(NamedTuple):
    sensor: str  # the sensor's named one, good for publishing to one topic only
    revoked: str
    expiring: str
    collector: str


def play(folder: Path, options: Namespace) -> bool:
    with ExampleIssuer() as issuer:
        words = ISSUERS.format(issuer=issuer, audience=AUDIENCE, entitlement=ENTITLEMENT, project=PROJECT)
        issuers = write_secret(folder / "issuers.toml", words)
        flags = ("--issuers-file", str(issuers), "--issuers-allow", "127.0.0.0/8")
        with service.running(folder / "ams-data", 0, *flags) as ams:
            return _run(ams, issuer, options.each)


def _run(ams: Service, issuer: ExampleIssuer, each: int) -> bool:
    began = perf_counter()
    print(f"AMS is ready at {ams.url}, the issuer at {issuer.url}.\n", flush=True)
    trust_of_library(ams.ca)
    with ams.administrator() as admin:
        tokens = _prepare(admin, issuer)
        expires = time.monotonic() + SHORT_LIVED
        with Client(ams.url, bearer=_alice(issuer), ca=str(ams.ca)) as alice:
            name = alice.call(wire.get_profile()).name
        print(f"Alice has logged in, and is {name}: publisher by her entitlement.")
        admin.call(wire.modify_topic_acl(PROJECT, TOPIC, [name, CAROL, SENSOR]))
    published = _publish_all(ams, issuer, tokens, each)
    received = site.collect(_library(ams, tokens.collector))
    print(f"The collector pulled {len(received)} messages.\n\nOthers try:", flush=True)
    time.sleep(max(0.0, expires - time.monotonic()))
    refused = sum(_is_refused(ams, tried, tried.headers(issuer, tokens)) for tried in TRIES)
    whole = site.is_whole("identity-demo", published, received)
    print(
        f"identity-demo: accepted {len(published)} refused {refused} messages {len(received)} "
        f"seconds {perf_counter() - began:.1f}"
    )
    return whole and refused == len(TRIES)


def _prepare(admin: Client, issuer: ExampleIssuer) -> Tokens:
    site.make_federation(admin, OTHER_TOPIC)
    site.member(admin, CAROL, "publisher")
    site.member(admin, SENSOR, "publisher")
    collector = site.member(admin, COLLECTOR, "consumer").token
    admin.call(wire.modify_subscription_acl(PROJECT, SUBSCRIPTION, [COLLECTOR]))
    admin.call(wire.modify_topic_acl(PROJECT, OTHER_TOPIC, [SENSOR]))
    admin.call(wire.create_binding(CAROL, "example", issuer=issuer.url, subject="carol"))
    revoked = _named_token(admin, "lost")
    admin.call(wire.revoke_token(SENSOR, "lost"))
    expiring = _named_token(admin, "for-a-moment", SHORT_LIVED)
    return Tokens(_named_token(admin, "reports-only"), revoked, expiring, collector)


def _named_token(admin: Client, name: str, seconds: int | None = None) -> str:
    rights = [wire.Right(action=action, resource=f"projects/{PROJECT}/topics/{TOPIC}") for action in PUBLISH]
    return admin.call(wire.create_token(SENSOR, name, expires_in=seconds, rights=rights)).token


def _publish_all(ams: Service, issuer: ExampleIssuer, tokens: Tokens, each: int) -> list[str]:
    published = _publish(ams, _alice(issuer), "Alice", each)
    published += _publish(ams, issuer.opaque("carol"), "Carol", each)
    by_token, reports = _library(ams, tokens.sensor), site.reports("The sensor", each)
    for report in reports:
        by_token.publish(TOPIC, AmsMessage(data=report))
    issuer.rotate()
    published += reports + _publish(ams, _alice(issuer), "Alice, by a new key of the issuer,", each)
    print(f"Alice, Carol and the sensor published {len(published)} messages: by JWT, opaque and named token.")
    return published


def _publish(ams: Service, token: str, who: str, count: int) -> list[str]:
    published = site.reports(who, count)
    with Client(ams.url, bearer=token, ca=str(ams.ca)) as client:
        topic = client.project(PROJECT).topic(TOPIC)
        for report in published:
            topic.publish([Message(report.encode())])
    return published


def _alice(issuer: ExampleIssuer) -> str:
    return issuer.token("alice", audience=AUDIENCE, claims={"entitlements": [ENTITLEMENT]})


def _library(ams: Service, token: str) -> ArgoMessagingService:
    return ArgoMessagingService(endpoint=ams.endpoint, project=PROJECT, token=token)


Headers = Callable[[ExampleIssuer, Tokens], Mapping[str, str]]


class Try(NamedTuple):
    name: str
    code: int
    text: str
    headers: Headers
    topic: str = TOPIC


def _issued(**asked: object) -> Headers:
    """Return the header of a token of the issuer (RFC 6750, 2.1)."""
    own: dict[str, object] = {"audience": AUDIENCE, **asked}
    return lambda issuer, _: {"authorization": f"Bearer {issuer.token(**own)}"}  # type: ignore[arg-type]


def _named(which: str) -> Headers:
    return lambda _, tokens: {"x-api-key": getattr(tokens, which)}


NOT_ACCEPTED = "The token is signed in a way that is not accepted here: HS256"
NO_ROLE = "No entitlement of the identity gives it a role here (issuer example)"
TRIES = (
    Try("unsigned", 401, "The token is not signed", _issued(algorithm="none")),
    Try("signed with what is public", 401, NOT_ACCEPTED, _issued(algorithm="HS256")),
    Try("expired", 401, "The token has expired", _issued(lifetime=-3600)),
    Try("for another service", 401, "The token is for another audience: others", _issued(audience="others")),
    Try("of no user", 401, NO_ROLE, _issued(subject="mallory")),
    Try("named, expired", 401, "The token has expired", _named("expiring")),
    Try("named, revoked", 401, UNKNOWN, _named("revoked")),
    Try("named, for another topic", 403, "The token is not good for this", _named("sensor"), OTHER_TOPIC),
)


def _is_refused(ams: Service, tried: Try, headers: Mapping[str, str]) -> bool:
    path = f"{ams.url}/v1/projects/{PROJECT}/topics/{tried.topic}:publish"
    with httpx.Client(verify=ssl.create_default_context(cafile=str(ams.ca)), trust_env=False) as http:
        answer = http.post(path, headers=headers, json={"messages": [{"data": "Zm9yZ2Vk"}]})
    if answer.is_success:
        print(f"  {tried.name}: accepted")
        return False
    text, challenge = answer.json()["error"]["message"], answer.headers.get("www-authenticate", "")
    print(f"  {tried.name}: {answer.status_code} {text}")
    reason = f', error="invalid_token", error_description="{text}"' if text != UNKNOWN else ""
    wanted = (tried.code, tried.text, CHALLENGE + reason if tried.code == 401 else "")
    return (answer.status_code, text, challenge) == wanted


if __name__ == "__main__":
    about = "Log in with tokens of an issuer."
    sys.exit(service.run_demo("identity", about, play, AmsException, httpx.HTTPError, each=50))
