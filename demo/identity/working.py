"""What clients do: publish with any kind of login, pull, and be refused."""

import ssl
from collections.abc import Mapping
from typing import NamedTuple

import httpx
from argo_ams_library import AmsMessage, ArgoMessagingService

from ams.client import Client, Message, wire
from demo.federation import PROJECT, TOPIC, reports
from demo.service import Service


class Refusal(NamedTuple):
    """How a request was refused."""

    code: int
    text: str
    challenge: str
    """The header WWW-Authenticate, by which clients know how to log in (RFC 6750, 3)."""


def library(ams: Service, token: str) -> ArgoMessagingService:
    """Return the official library with a token of AMS."""
    return ArgoMessagingService(endpoint=ams.endpoint, project=PROJECT, token=token)


def log_in(ams: Service, token: str) -> str:
    """Show a token of the issuer for the first time; return who one is."""
    with Client(ams.url, bearer=token, ca=str(ams.ca)) as client:
        return client.call(wire.get_profile()).name


def publish(ams: Service, token: str, who: str, count: int) -> list[str]:
    """Publish reports, one a request, with a token of the issuer; return what they say."""
    published = reports(who, count)
    with Client(ams.url, bearer=token, ca=str(ams.ca)) as client:
        topic = client.project(PROJECT).topic(TOPIC)
        for report in published:
            topic.publish([Message(report.encode())])
    return published


def publish_as_ever(ams: Service, token: str, who: str, count: int) -> list[str]:
    """Do the same with a token of AMS and the official library, which supports no other tokens."""
    published = reports(who, count)
    by_token = library(ams, token)
    for report in published:
        by_token.publish(TOPIC, AmsMessage(data=report))
    return published


def refusal(ams: Service, headers: Mapping[str, str], topic: str = TOPIC) -> Refusal | None:
    """Return how a publish with these headers is refused; None when it is not."""
    trust = ssl.create_default_context(cafile=str(ams.ca))
    path = f"{ams.url}/v1/projects/{PROJECT}/topics/{topic}:publish"
    body = {"messages": [{"data": "Zm9yZ2Vk"}]}
    with httpx.Client(verify=trust, trust_env=False) as http:
        answer = http.post(path, headers=headers, json=body)
    if answer.is_success:
        return None
    return Refusal(answer.status_code, answer.json()["error"]["message"], answer.headers.get("www-authenticate", ""))


def bearer(token: str) -> Mapping[str, str]:
    """Return the header of a bearer token (RFC 6750, 2.1)."""
    return {"authorization": f"Bearer {token}"}


def api_key(token: str) -> Mapping[str, str]:
    """Return the header that clients of AMS have always sent."""
    return {"x-api-key": token}
