"""Logging in over HTTP by tokens of issuers: two of them run, and a third misbehaves."""

import base64
import concurrent.futures
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from ams.core.clock import ManualClock
from ams.identity import discovery
from ams.storage.audit.logins import MINUTE
from demo.issuer import CLIENT, CLIENT_SECRET, INTROSPECT, JWKS, ExampleIssuer
from tests.support.served import Served, served

GROUP = "urn:mace:egi.eu:group:monitoring.egi.eu"
SECONDS = 2.0
"""How long an issuer is waited for here."""


@dataclass
class Installation:
    """The service, its issuers, and one client."""

    service: Served
    data: Path
    client: httpx.Client
    egi: ExampleIssuer
    """Of the settings; makes no users."""
    site: ExampleIssuer
    """Set over the API; makes users, and is asked about tokens that say nothing."""
    ill: ExampleIssuer
    own: str = ""
    """The own token of the user alice, who may publish and is bound at the first issuer."""
    shown: str = ""
    """A token of that issuer."""

    def admin(self, method: str, path: str, body: object = None) -> httpx.Response:
        return self.client.request(method, path, json=body, headers={"x-api-key": self.service.token})

    def done(self, method: str, path: str, body: object = None) -> Any:
        answer = self.admin(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.content else None

    def bearer(self, token: str, method: str = "GET", path: str = "/users/profile") -> httpx.Response:
        return self.client.request(method, path, headers={"authorization": f"Bearer {token}"})

    def publish(self, **headers: str) -> int:
        body = {"messages": [{"data": base64.b64encode(b"here").decode()}]}
        return self.client.post("/projects/P/topics/garden:publish", json=body, headers=headers).status_code

    def publish_as(self, token: str) -> int:
        return self.publish(authorization=f"Bearer {token}")

    def all_goes_on(self) -> bool:
        """Whether those who do nothing wrong are let in: by token of an issuer, by x-api-key, by own token."""
        by_key = self.publish(**{"x-api-key": self.own})
        return [by_key, self.publish_as(self.shown), self.publish_as(self.own)] == [200, 200, 200]

    def failed_logins(self) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.data / "audit.jsonl").read_text().splitlines())
        return [each for each in lines if each["action"] == "login"]

    def forget_failures(self) -> None:
        """Let a minute pass: of the failed logins of one address only the first few are a line each."""
        self.service.clock.advance(MINUTE)


def issuer(clock: list[ManualClock]) -> ExampleIssuer:
    return ExampleIssuer(now=lambda: clock[0].wall() / 1000)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("bearer")
    clock = [ManualClock()]
    with (
        pytest.MonkeyPatch.context() as patch,
        issuer(clock) as egi,
        issuer(clock) as site,
        issuer(clock) as ill,
    ):
        patch.setattr(discovery, "SECONDS", SECONDS)
        (folder / "issuers.toml").write_text(f'[[issuer]]\nname = "egi"\nurl = "{egi.url}"\naudiences = ["ams"]\n')
        settings = {"issuers_file": str(folder / "issuers.toml"), "issuers_allow": "127.0.0.0/8"}
        with served(folder / "ams-data", **settings) as service:
            clock[0] = service.clock
            with httpx.Client(base_url=service.run.base_url + "/v1", trust_env=False, timeout=10) as client:
                installation = Installation(service, folder / "ams-data", client, egi, site, ill)
                prepare(installation)
                yield installation


def prepare(installation: Installation) -> None:
    installation.done("POST", "/projects/P", {})
    installation.done("PUT", "/projects/P/topics/garden", {})
    alice = installation.done("POST", "/users/alice", {"projects": [{"project": "P", "roles": ["publisher"]}]})
    installation.done("POST", "/projects/P/topics/garden:modifyAcl", {"authorized_users": ["alice"]})
    installation.done("POST", "/users/alice/bindings/work", {"issuer": installation.egi.url, "subject": "alice"})
    rules = [
        {"entitlement": f"{GROUP}:role=publisher", "project": "P", "roles": ["publisher"]},
        {"entitlement": f"{GROUP}:role=reader", "project": "P", "roles": ["consumer"]},
    ]
    asked = {"introspect": "opaque", "client_id": CLIENT, "client_secret": CLIENT_SECRET}
    site = {"url": installation.site.url, "audiences": ["ams"], "create_users": True, "roles": rules, **asked}
    installation.done("POST", "/issuers/site", site)
    installation.done("POST", "/issuers/ill", {"url": installation.ill.url, "audiences": ["ams"]})
    installation.own, installation.shown = alice["token"], installation.egi.token(lifetime=10**6)


def refused(answer: httpx.Response, why: str) -> None:
    """Check how a bad token is answered (RFC 6750, 3; HTTP contract 1.1)."""
    assert answer.status_code == 401, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["status"]) == (401, "UNAUTHORIZED")
    assert why in error["message"]
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="ams", error="invalid_token", error_description="')


def test_a_token_of_an_issuer_publishes_beside_tokens_of_ams(installation: Installation) -> None:
    assert installation.all_goes_on()
    assert installation.bearer(installation.shown).json()["name"] == "alice"


def test_who_logs_in_by_an_issuer_is_not_shown_the_own_token(installation: Installation) -> None:
    assert "token" not in installation.bearer(installation.shown).json()
    assert installation.bearer(installation.own).json()["token"] == installation.own


def test_x_api_key_wins_over_a_bearer(installation: Installation) -> None:
    assert installation.publish(**{"x-api-key": installation.own, "authorization": "Bearer nonsense"}) == 200
    assert installation.publish(**{"x-api-key": "nonsense", "authorization": f"Bearer {installation.shown}"}) == 401


OTHER_KEY = rsa.generate_private_key(65537, 2048)

FORGED: dict[str, tuple[Callable[[ExampleIssuer], str], str]] = {
    "no signature": (lambda egi: egi.token(algorithm="none"), "not signed"),
    "the public key as a secret": (lambda egi: egi.token(algorithm="HS256"), "not accepted here: HS256"),
    "another key": (lambda egi: egi.token(key=OTHER_KEY), "signature"),
    "a changed subject": (lambda egi: changed(egi.token(), "boss"), "signature"),
    "of the future": (lambda egi: egi.token(claims={"nbf": later(egi, 3600)}), "not good yet"),
    "made in the future": (lambda egi: egi.token(claims={"iat": later(egi, 3600)}), "issued in the future"),
    "of the past": (lambda egi: egi.token(lifetime=-3600), "expired"),
    "without an end": (lambda egi: egi.token(claims={"exp": None}), "when it expires"),
    "for another service": (lambda egi: egi.token(audience="elsewhere"), "audience"),
    "of a stranger": (lambda egi: egi.token(claims={"iss": "https://stranger.example"}), "issuer"),
    "without a subject": (lambda egi: egi.token(claims={"sub": None}), "whose it is"),
    "of somebody unbound": (lambda egi: egi.token("nobody"), "not bound to a user (issuer egi)"),
    "a thousand entitlements": (
        lambda egi: egi.token(claims={"entitlements": [f"urn:x:y:group:{n}" for n in range(1000)]}, algorithm="ES256"),
        "",
    ),
    "huge": (lambda egi: egi.token(claims={"x": "x" * 20_000}), "longer"),
    "a key in the header": (lambda egi: egi.token(key=OTHER_KEY, headers={"jwk": {"kty": "RSA"}}), ""),
    "critical headers": (lambda egi: egi.token(headers={"crit": ["exp"]}), "critical parameters"),
    "three dots and nothing": (lambda egi: "..", ""),
    "of no form": (lambda egi: "a.b.c", ""),
}


def changed(token: str, subject: str) -> str:
    head, said, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(said + "==")) | {"sub": subject}
    return f"{head}.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.{signature}"


def later(egi: ExampleIssuer, seconds: int) -> int:
    claims = json.loads(base64.urlsafe_b64decode(egi.token().split(".")[1] + "=="))
    return int(claims["iat"]) + seconds


@pytest.mark.parametrize("kind", FORGED)
def test_a_bad_token_is_refused_and_recorded_and_all_else_goes_on(installation: Installation, kind: str) -> None:
    make, why = FORGED[kind]
    installation.forget_failures()
    before = len(installation.failed_logins())

    answer = installation.bearer(make(installation.egi))

    refused(answer, why)
    (line,) = installation.failed_logins()[before:]
    assert (line["code"], line["result"], line["resource"]) == (401, "refused", "/users/profile")
    assert line["reason"] == answer.json()["error"]["message"]
    assert installation.all_goes_on()


def test_a_bad_token_opens_no_hot_route_either(installation: Installation) -> None:
    assert installation.publish_as(installation.egi.token(algorithm="none")) == 401
    assert installation.publish(authorization="Bearer") == 401


def test_what_is_no_token_at_all_is_refused(installation: Installation) -> None:
    for text in ("x" * 100_000, "\u00ff", "{}", "=", ".", "..."):
        header = b"Bearer " + text.encode("latin-1")
        answer = installation.client.get("/users/profile", headers={b"authorization": header})
        assert answer.status_code in (400, 401), text[:10]


def test_a_token_expires_while_it_is_in_use(installation: Installation) -> None:
    token = installation.egi.token(lifetime=60)
    assert installation.publish_as(token) == 200

    installation.service.clock.advance(60_000 + 31_000)  # the leeway is 30 s

    refused(installation.bearer(token), "expired")


def test_keys_are_changed_in_mid_flight(installation: Installation) -> None:
    installation.service.clock.advance(60_000)
    before = installation.egi.token(lifetime=3600)
    assert installation.publish_as(before) == 200

    installation.egi.rotate(keep_old=True)
    fresh = installation.egi.token(lifetime=10**6)
    assert installation.publish_as(fresh) == 200
    assert installation.publish_as(before) == 200

    installation.service.clock.advance(31_000)
    installation.egi.rotate()
    newest = installation.egi.token(lifetime=10**6)
    assert installation.publish_as(newest) == 200
    refused(installation.bearer(before), "key")
    refused(installation.bearer(fresh), "key")
    installation.shown = newest


def test_keys_that_do_not_come_are_waited_for_together_and_hold_up_nobody(installation: Installation) -> None:
    installation.service.clock.advance(31_000)
    installation.ill.hang = True
    before = installation.ill.requests[JWKS]
    tokens = [installation.ill.token(str(number)) for number in range(5)]
    try:
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            waiting = [pool.submit(installation.bearer, token) for token in tokens]
            assert installation.all_goes_on()
            answers = [each.result() for each in waiting]
    finally:
        installation.ill.hang = False
    for answer in answers:
        refused(answer, "The keys of issuer ill cannot be had now")
        assert int(answer.headers["retry-after"]) >= 1
    assert installation.ill.requests[JWKS] == before + 1


LIES = {
    "no json": b"<html>",
    "no keys": b'{"keys": []}',
    "another thing": b"[1, 2]",
    "a secret key": json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "1", "alg": "HS256"}]}).encode(),
    "too much": b'{"keys": [' + b" " * (discovery.MOST_BYTES + 1) + b"]}",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", LIES)
def test_an_issuer_that_lies_about_its_keys_is_not_believed(installation: Installation, kind: str) -> None:
    installation.service.clock.advance(31_000)
    installation.ill.lie = LIES[kind]

    answer = installation.bearer(installation.ill.token("alice"))

    installation.ill.lie = None
    refused(answer, "The keys of issuer ill cannot be had now")
    assert installation.done("GET", "/issuers/ill")["keys"]["failure"]
    assert installation.all_goes_on()


def test_an_issuer_is_believed_again_when_it_comes_back(installation: Installation) -> None:
    installation.service.clock.advance(31_000)

    refused(installation.bearer(installation.ill.token("alice")), "not bound")

    keys = installation.done("GET", "/issuers/ill")["keys"]
    assert keys.get("failure", "") == ""
    assert len(keys["ids"]) == 2


def test_the_first_login_makes_a_user_whose_roles_follow(installation: Installation) -> None:
    said = {"entitlements": [f"{GROUP}:role=publisher"], "email": "carol@site.example"}
    carol = installation.bearer(installation.site.token("carol", claims=said)).json()

    assert carol["name"].startswith("site-")
    assert (carol["email"], carol["projects"][0]["roles"]) == ("carol@site.example", ["publisher"])
    bindings = installation.done("GET", f"/users/{carol['name']}/bindings")["bindings"]
    assert [(each["subject"], each["by_login"]) for each in bindings] == [("carol", True)]
    after = installation.bearer(
        installation.site.token("carol", claims={"entitlements": f"{GROUP}:role=reader"})
    ).json()
    assert after["projects"][0]["roles"] == ["consumer"]
    lines = [json.loads(line) for line in (installation.data / "audit.jsonl").read_text().splitlines()]
    made, changed = [each for each in lines if each["action"].startswith("logins:")]
    assert (made["action"], made["actor"], made["address"]) == ("logins:create", carol["name"], "127.0.0.1")
    assert made["request"]
    assert (changed["action"], changed["reason"]) == ("logins:roles", "entitlements of issuer site")
    refused(installation.bearer(installation.site.token("dave")), "gives it a role here (issuer site)")


def test_bindings_may_be_seen_by_whom_they_bind_and_changed_by_administrators_only(installation: Installation) -> None:
    assert installation.bearer(installation.shown, path="/users/alice/bindings").json()["bindings"][0]["name"] == "work"
    assert installation.bearer(installation.shown, path="/users/admin/bindings").status_code in (401, 403)
    assert installation.bearer(installation.shown, "DELETE", "/users/alice/bindings/work").status_code in (401, 403)
    assert installation.bearer(installation.shown, path="/issuers").status_code in (401, 403)
    taken = {"issuer": installation.egi.url, "subject": "alice"}
    assert installation.admin("POST", "/users/admin/bindings/work", taken).status_code == 409


def test_the_end_of_a_binding_or_a_user_ends_the_login_at_once(installation: Installation) -> None:
    installation.done("POST", "/users/erin", {"projects": [{"project": "P", "roles": ["publisher"]}]})
    binding = {"issuer": installation.egi.url, "subject": "erin"}
    token = installation.egi.token("erin")
    for path in ("/users/erin/bindings/work", "/users/erin"):
        installation.admin("POST", "/users/erin/bindings/work", binding)
        assert installation.bearer(token).status_code == 200
        installation.done("DELETE", path)
        refused(installation.bearer(token), "not bound")


def test_tokens_that_say_nothing_are_asked_about_and_end_when_they_are_withdrawn(installation: Installation) -> None:
    token = installation.site.opaque("frank", entitlements=[f"{GROUP}:role=publisher"])
    before = installation.site.requests[INTROSPECT]

    assert [installation.bearer(token).status_code for _ in range(3)] == [200, 200, 200]
    assert installation.site.requests[INTROSPECT] == before + 1

    installation.site.withdraw(token)
    installation.service.clock.advance(61_000)
    refused(installation.bearer(token), "not active")
    refused(installation.bearer(token), "not active")
    assert installation.site.requests[INTROSPECT] == before + 2
    refused(installation.bearer("0" * 64), "")
    assert installation.site.requests[INTROSPECT] == before + 2


def test_an_issuer_that_cannot_be_asked_is_for_later(installation: Installation) -> None:
    token = installation.site.opaque("frank", entitlements=[f"{GROUP}:role=publisher"])
    installation.site.stop()
    try:
        answer = installation.bearer(token)
        assert installation.all_goes_on()
    finally:
        installation.site.start()

    refused(answer, "cannot be asked")
    assert int(answer.headers["retry-after"]) >= 1
    assert installation.bearer(token).status_code == 200


def test_an_issuer_that_is_changed_or_removed_has_its_tokens_looked_at_anew(installation: Installation) -> None:
    installation.forget_failures()
    installation.done("POST", "/users/gina", {"projects": [{"project": "P", "roles": ["publisher"]}]})
    installation.done("POST", "/users/gina/bindings/ill", {"issuer": installation.ill.url, "subject": "gina"})
    token = installation.ill.token("gina")
    assert installation.bearer(token).status_code == 200

    installation.done("PUT", "/issuers/ill", {"url": installation.ill.url, "audiences": ["elsewhere"]})
    refused(installation.bearer(token), "audience")
    installation.done("PUT", "/issuers/ill", {"url": installation.ill.url, "clients": ["app"]})
    assert installation.bearer(token).status_code == 200
    installation.done("DELETE", "/issuers/ill")
    refused(installation.bearer(token), "issuer")
    installation.done("POST", "/issuers/ill", {"url": installation.ill.url, "audiences": ["ams"]})
    assert installation.bearer(token).status_code == 200


def test_issuers_are_shown_without_their_secrets(installation: Installation) -> None:
    assert installation.all_goes_on()
    shown = installation.done("GET", "/issuers")["issuers"]
    egi, site = shown[0], next(each for each in shown if each["name"] == "site")

    assert (egi["name"], egi["source"], egi["client_secret"]) == ("egi", "settings", "")
    assert (site["name"], site["source"], site["client_secret"]) == ("site", "registry", "***")
    assert site["roles"][0] == {"entitlement": f"{GROUP}:role=publisher", "project": "P", "roles": ["publisher"]}
    assert len(egi["keys"]["ids"]) == 2
    assert egi["keys"]["fetched_on"]
    kept = installation.done("PUT", "/issuers/site", site)
    assert kept["client_secret"] == "***"
    assert installation.admin("PUT", "/issuers/egi", {"url": egi["url"], "audiences": ["ams"]}).status_code == 409
    assert installation.admin("DELETE", "/issuers/egi").status_code == 409


@pytest.mark.parametrize(
    "said",
    [
        {"url": "bad", "audiences": ["ams"]},
        {"url": "https://bad.example", "audiences": ["ams"], "introspect": "sometimes"},
        {"url": "https://bad.example", "audiences": ["ams"], "client": ["app"]},
        {"url": "https://bad.example", "audiences": "ams"},
        {"url": "https://bad.example"},
        {},
        [],
    ],
)
def test_an_issuer_that_cannot_be_is_refused(installation: Installation, said: object) -> None:
    assert installation.admin("POST", "/issuers/bad", said).status_code == 400


def test_no_token_is_written_anywhere(installation: Installation) -> None:
    files = [path for path in installation.data.rglob("*") if path.is_file() and path.suffix != ".token"]
    written = b"".join(path.read_bytes() for path in files)

    assert installation.shown.encode() not in written
    assert installation.own.encode() not in written


@pytest.mark.embedded
def test_a_start_needs_no_issuer_that_was_there_before(tmp_path: Path) -> None:
    clock = [ManualClock()]
    with issuer(clock) as egi:
        (tmp_path / "issuers.toml").write_text(f'[[issuer]]\nname = "egi"\nurl = "{egi.url}"\naudiences = ["ams"]\n')
        settings = {"issuers_file": str(tmp_path / "issuers.toml"), "issuers_allow": "127.0.0.0/8"}
        token = egi.token()
        binding = {"issuer": egi.url, "subject": "alice"}

        def asked(service: Served) -> int:
            headers = {"authorization": f"Bearer {token}"}
            return httpx.get(service.run.base_url + "/v1/users/profile", headers=headers, trust_env=False).status_code

        with served(tmp_path / "ams-data", **settings) as service:
            url, headers = service.run.base_url + "/v1/users/admin/bindings/work", {"x-api-key": service.token}
            httpx.post(url, json=binding, headers=headers, trust_env=False).raise_for_status()
            assert asked(service) == 200
        egi.stop()
        with served(tmp_path / "ams-data", **settings) as service:
            assert asked(service) == 200
