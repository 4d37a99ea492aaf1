"""Who may do what: the issuer and its mapping of entitlements, users, a binding, and named tokens."""

from pathlib import Path
from typing import NamedTuple

from ams.client import Client, wire
from ams.core.rights import PUBLISH
from demo.federation import PROJECT, SUBSCRIPTION, TOPIC, member
from demo.issuer import ExampleIssuer

OTHER_TOPIC = "alarms"
AUDIENCE = "ams"
"""What tokens must be meant for."""
ENTITLEMENT = "urn:geant:example.org:group:federation:role=reporter#aai.example.org"
"""Who has it becomes a publisher of the project (AARC-G069)."""
CAROL, SENSOR, COLLECTOR = "carol", "sensor", "collector"
SHORT_LIVED = 1
"""Seconds that the token which is to expire is good for."""


class Tokens(NamedTuple):
    """Tokens of AMS, by what they are for."""

    sensor: str
    """The sensor's named one, good for publishing to one topic only."""
    revoked: str
    expiring: str
    collector: str
    """The collector's own one."""


def write_issuers(path: Path, issuer: ExampleIssuer) -> None:
    """Write the file of issuers, which is the mapping file too."""
    path.touch(mode=0o600)
    path.write_text(
        f"""\
[[issuer]]
name = "example"
url = "{issuer.url}"
audiences = ["{AUDIENCE}"]
introspect = "opaque"
client_id = "{issuer.client_id}"
client_secret = "{issuer.client_secret}"
create_users = true

[[issuer.roles]]
entitlement = "{ENTITLEMENT}"
project = "{PROJECT}"
roles = ["publisher"]
"""
    )


def prepare(admin: Client, issuer: ExampleIssuer) -> Tokens:
    """Make project, topics, subscription, users, Carol's binding and the named tokens."""
    admin.call(wire.create_project(PROJECT))
    project = admin.project(PROJECT)
    for name in (TOPIC, OTHER_TOPIC):
        project.topic(name).create()
    project.subscription(SUBSCRIPTION).create(TOPIC)
    member(admin, CAROL, "publisher")
    member(admin, SENSOR, "publisher")
    collector = member(admin, COLLECTOR, "consumer").token
    admin.call(wire.modify_subscription_acl(PROJECT, SUBSCRIPTION, [COLLECTOR]))
    admin.call(wire.modify_topic_acl(PROJECT, OTHER_TOPIC, [SENSOR]))
    admin.call(wire.create_binding(CAROL, "example", issuer=issuer.url, subject="carol"))
    return Tokens(
        sensor=_named_token(admin, "reports-only"),
        revoked=_revoked_token(admin),
        expiring=_named_token(admin, "for-a-moment", SHORT_LIVED),
        collector=collector,
    )


def let_publish(admin: Client, users: list[str]) -> None:
    """Put them on the access list of the topic."""
    admin.call(wire.modify_topic_acl(PROJECT, TOPIC, users))


def _named_token(admin: Client, name: str, seconds: int | None = None) -> str:
    rights = [wire.Right(action=action, resource=f"projects/{PROJECT}/topics/{TOPIC}") for action in PUBLISH]
    return admin.call(wire.create_token(SENSOR, name, expires_in=seconds, rights=rights)).token


def _revoked_token(admin: Client) -> str:
    token = _named_token(admin, "lost")
    admin.call(wire.revoke_token(SENSOR, "lost"))
    return token
