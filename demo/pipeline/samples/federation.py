"""A day of a federation registry: services are created, edited and deleted, and deployers answer.

Some answers tell of errors, which a second try or the next edit puts right; some come only the next day, or never.
"""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

from demo.pipeline.samples import Mishaps, Sample, Timed

KEYCLOAK, SATOSA = "prod_egi_service_keycloak_production", "prod_egi_service_ssp_demo"
ANSWERS = "prod_deployment_results"
TOPICS = (KEYCLOAK, SATOSA, ANSWERS)


def messages(seed: int, day: date, *, services: int = 40, mishaps: Mishaps | None = None) -> Iterator[Sample]:
    """Yield the messages of a day in the order they are published in; about five for each service."""
    random = Random(seed)  # made-up data
    told = (timed for number in range(1, services + 1) for timed in _life(number, day, random))
    return (mishaps or Mishaps()).applied(told, random, lambda sample: _spoilt(sample, random))


def _life(number: int, day: date, random: Random) -> Iterator[Timed]:
    at = datetime.combine(day, time(), UTC) + timedelta(seconds=random.randrange(43_200))
    kinds = ["create", *["edit"] * random.randrange(3), *["delete"] * (random.random() < 0.2)]
    for edition, kind in enumerate(kinds):
        yield at, _configuration(number, kind, edition, random)
        yield from _answers(number, at, random)
        at += timedelta(seconds=random.randint(600, 14_400))


def _answers(number: int, at: datetime, random: Random) -> Iterator[Timed]:
    if random.random() < 0.1:
        return
    at += timedelta(seconds=random.randint(1, 300))
    if random.random() < 0.2:
        failure = {"state": "error", "status_code": random.choice((0, 400, 503)), "error_description": "no answer"}
        yield at, _answer(number, failure)
        if random.random() < 0.3:
            return
        at += timedelta(seconds=random.randint(1, 300))
    yield at, _answer(number, {"state": "deployed", "status_code": 200, "client_id": f"client-{number}"})


def _configuration(number: int, kind: str, edition: int, random: Random) -> Sample:
    oidc = number % 3 != 0
    told: dict[str, Any] = {
        "id": number,
        "deployment_type": kind,
        "tenant": "egi",
        "protocol": "oidc" if oidc else "saml",
        "integration_environment": "production" if oidc else "demo",
        "external_id": number + 1000 if edition else None,
        "service_name": f"Service {number}",
        "service_description": f"A service to try things with, edition {edition}",
        "logo_uri": f"https://service{number}.example.org/logo.png",
        "policy_uri": f"https://service{number}.example.org/privacy",
        "website_url": f"https://service{number}.example.org/",
        "country": "EX",
        "contacts": [{"email": f"admin@service{number}.example.org", "type": "admin"}],
    }
    told |= _oidc(number, edition, random) if oidc else _saml(number)
    return Sample(KEYCLOAK if oidc else SATOSA, json.dumps(told).encode())


def _oidc(number: int, edition: int, random: Random) -> dict[str, Any]:
    return {
        "client_id": f"client-{number}",
        "client_secret": f"secret-{random.getrandbits(128):032x}",
        "redirect_uris": [f"https://service{number}.example.org/callback/{edition}"],
        "scope": ["openid", "email", "profile"],
        "grant_types": ["authorization_code"],
        "token_endpoint_auth_method": "client_secret_basic",
        "code_challenge_method": "S256",
        "access_token_validity_seconds": 3600,
        "jwks": None,
    }


def _saml(number: int) -> dict[str, Any]:
    return {
        "entity_id": f"https://service{number}.example.org/saml",
        "metadata_url": f"https://service{number}.example.org/saml/metadata",
        "requested_attributes": ["mail", "eduPersonPrincipalName"],
    }


def _answer(number: int, told: dict[str, Any]) -> Sample:
    deployer = "keycloak" if number % 3 else "ssp"
    return Sample(ANSWERS, json.dumps({"id": number, "deployer_name": deployer, **told}).encode())


def _spoilt(sample: Sample, random: Random) -> bytes:
    told = json.loads(sample.data)
    damages = (
        sample.data[:-30],
        json.dumps({**told, "id": "seven"}).encode(),
        json.dumps({name: value for name, value in told.items() if name not in ("deployment_type", "state")}).encode(),
        json.dumps({**told, "deployment_type": "explode", "state": "exploded"}).encode(),
        b"[]",
    )
    return random.choice(damages)
