import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.access.logins import Logins
from ams.http.fast_lane import LaneExchange
from ams.storage.audit.trail import MINUTE
from demo.issuer import CLIENT, CLIENT_SECRET, INTROSPECT, ExampleIssuer
from tests.support.clock import ManualClock
from tests.support.served import InProcessService, in_process_service

GROUP = "urn:mace:egi.eu:group:monitoring.egi.eu"


@dataclass
class Installation:
    service: InProcessService
    data: Path
    client: httpx.Client
    egi: ExampleIssuer  # of the settings; makes no users
    site: ExampleIssuer  # set over the API; makes users, and introspects opaque tokens
    other: ExampleIssuer  # set over the API too
    own: str = ""  # the own token of the user alice, who may publish and is bound at the first issuer
    shown: str = ""  # a token of that issuer

    def bearer(self, token: str, method: str = "GET", path: str = "/users/profile") -> httpx.Response:
        return self.client.request(method, path, headers={"authorization": f"Bearer {token}"})

    def publish(self, **headers: str) -> int:
        body = {"messages": [{"data": base64.b64encode(b"here").decode()}]}
        return self.client.post("/projects/P/topics/garden:publish", json=body, headers=headers).status_code

    def publish_as(self, token: str) -> int:
        return self.publish(authorization=f"Bearer {token}")

    def all_goes_on(self) -> bool:
        """Return whether good clients are admitted: by issuer token, by x-api-key, by own token."""
        by_key = self.publish(**{"x-api-key": self.own})
        return [by_key, self.publish_as(self.shown), self.publish_as(self.own)] == [200, 200, 200]

    def read_events(self, action: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.data / "audit.jsonl").read_text().splitlines())
        return [each for each in lines if each["action"].startswith(action)]

    def forget_failures(self) -> None:
        """Let a minute pass: only the first few failed logins of an address in a minute get a line each."""
        self.service.clock.advance(MINUTE)


def issuer(clock: list[ManualClock]) -> ExampleIssuer:
    return ExampleIssuer(now=lambda: clock[0].wall() / 1000)


def of_file(folder: Path, egi: ExampleIssuer) -> dict[str, str]:
    (folder / "issuers.toml").write_text(f'[[issuer]]\nname = "egi"\nurl = "{egi.url}"\naudiences = ["ams"]\n')
    return {"issuers_file": str(folder / "issuers.toml"), "issuers_allow": "127.0.0.0/8"}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("bearer")
    clock = [ManualClock()]
    with (issuer(clock) as egi, issuer(clock) as site, issuer(clock) as other,
          in_process_service(folder / "ams-data", user_requests_per_second=10**6, **of_file(folder, egi)) as service,
          httpx.Client(base_url=service.run.base_url + "/v1", trust_env=False, timeout=10) as client):  # fmt: skip
        clock[0] = service.clock
        installation = Installation(service, folder / "ams-data", client, egi, site, other)
        prepare(installation)
        yield installation


def prepare(installation: Installation) -> None:
    installation.service.ask("POST", "/projects/P", {})
    installation.service.ask("PUT", "/projects/P/topics/garden", {})
    alice = installation.service.ask("POST", "/users/alice", {"projects": [{"project": "P", "roles": ["publisher"]}]})
    installation.service.ask("POST", "/projects/P/topics/garden:modifyAcl", {"authorized_users": ["alice"]})
    installation.service.ask("POST", "/users/alice/bindings/work", {"issuer": installation.egi.url, "subject": "alice"})
    rules = [
        {"entitlement": f"{GROUP}:role={name}", "project": "P", "roles": [role]}
        for name, role in (("publisher", "publisher"), ("reader", "consumer"))
    ]
    asked = {"introspect": "opaque", "client_id": CLIENT, "client_secret": CLIENT_SECRET}
    site = {"url": installation.site.url, "audiences": ["ams"], "create_users": True, "roles": rules, **asked}
    installation.service.ask("POST", "/issuers/site", site)
    installation.service.ask("POST", "/issuers/other", {"url": installation.other.url, "audiences": ["ams"]})
    installation.own, installation.shown = alice["token"], installation.egi.token(lifetime=10**6)


def check_refusal(answer: httpx.Response, why: str) -> None:
    """Check the answer to a bad token (RFC 6750, 3; HTTP contract 1.1)."""
    assert answer.status_code == 401, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["status"]) == (401, "UNAUTHORIZED")
    assert why in error["message"]
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="ams", error="invalid_token", error_description="')


def test_a_token_of_an_issuer_publishes_beside_tokens_of_ams(installation: Installation) -> None:
    assert installation.all_goes_on()
    profile = installation.bearer(installation.shown).json()
    assert (profile["name"], "token" in profile) == ("alice", False)
    assert installation.bearer(installation.own).json()["token"] == installation.own


BAD_TOKENS: dict[str, tuple[Callable[[ExampleIssuer], str], str]] = {
    "not signed": (lambda egi: egi.token(algorithm="none"), "not signed"),
    "for another service": (lambda egi: egi.token(audience="elsewhere"), "audience"),
    "expired": (lambda egi: egi.token(lifetime=-3600), "expired"),
    "of somebody who is not bound": (lambda egi: egi.token("nobody"), "not bound to a user (issuer egi)"),
    "too long": (lambda egi: egi.token(claims={"x": "x" * 20_000}), "longer"),
}
"""Tokens, and a part of the refusal; all kinds of errors are tested in tests/identity."""


@pytest.mark.parametrize("kind", BAD_TOKENS)
def test_a_bad_token_is_refused_and_recorded_and_all_else_goes_on(installation: Installation, kind: str) -> None:
    make, why = BAD_TOKENS[kind]
    installation.forget_failures()
    before = len(installation.read_events("login"))

    answer = installation.bearer(make(installation.egi))

    check_refusal(answer, why)
    (line,) = installation.read_events("login")[before:]
    assert (line["code"], line["result"], line["resource"]) == (401, "refused", "/users/profile")
    assert line["reason"] == answer.json()["error"]["message"]
    assert installation.publish_as(make(installation.egi)) == 401
    assert installation.all_goes_on()


@pytest.mark.parametrize(("method", "path"), [("GET", "/users"), ("POST", "/users/x"), ("GET", "/users/profile")])
def test_a_request_is_refused_once(installation: Installation, monkeypatch: pytest.MonkeyPatch, method: str, path: str):
    looked, look = [], Logins.principal
    monkeypatch.setattr(Logins, "principal", lambda logins, token: looked.append(token) or look(logins, token))
    for token in (installation.egi.token(audience="elsewhere"), "opaque"):
        installation.forget_failures()
        looked.clear()
        before = len(installation.read_events("login"))

        check_refusal(installation.bearer(token, method, path), "")

        assert looked == [token]
        assert len(installation.read_events("login")) == before + 1


def test_a_token_whose_issuer_does_not_answer_may_be_tried_again_and_opens_what_is_open(installation: Installation):
    with issuer([installation.service.clock]) as away:
        away.stop()
        installation.service.ask("POST", "/issuers/away", {"url": away.url, "audiences": ["ams"]})
        before = len(installation.read_events("login"))

        assert installation.bearer(away.token(), path="/version").status_code == 200
        assert len(installation.read_events("login")) == before
        answer = installation.bearer(away.token())

    assert (answer.status_code, answer.headers["retry-after"]) == (401, "2")
    installation.service.ask("DELETE", "/issuers/away")


@pytest.mark.parametrize("ending", ["expiry", "/issuers/other", "/users/{}/bindings/work", "/users/{}"])
def test_a_lane_refuses_ended_logins(installation: Installation, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_lane, begin = [], LaneExchange._begin_work
    monkeypatch.setattr(LaneExchange, "_begin_work", lambda exchange: on_lane.append(exchange) or begin(exchange))
    name = f"hot-{len(ending)}"
    issuer = {"url": installation.other.url, "audiences": ["ams"]}
    installation.service.ask("POST", f"/users/{name}", {"projects": [{"project": "P", "roles": ["project_admin"]}]})
    binding = {"issuer": installation.other.url, "subject": name}
    installation.service.ask("POST", f"/users/{name}/bindings/work", binding)
    token = installation.other.token(name, lifetime=600 if ending == "expiry" else 10**6)
    assert [installation.publish_as(token) for _ in range(3)] == [200] * 3

    if ending == "expiry":
        installation.service.clock.advance(1000 * 1000)
    else:
        installation.service.ask("DELETE", ending.format(name))

    assert installation.publish_as(token) == 401
    assert len(on_lane) == 2
    if ending == "/issuers/other":
        installation.service.ask("POST", ending, issuer)


def test_what_is_no_token_at_all_is_refused(installation: Installation) -> None:
    for text in ("x" * 100_000, "\u00ff", "{}", "=", ".", "..."):
        header = b"Bearer " + text.encode("latin-1")
        answer = installation.client.get("/users/profile", headers={b"authorization": header})
        assert answer.status_code in (400, 401), text[:10]


def test_the_first_login_makes_a_user_whose_roles_follow(installation: Installation) -> None:
    said = {"entitlements": [f"{GROUP}:role=publisher"], "email": "carol@site.example"}
    carol = installation.bearer(installation.site.token("carol", claims=said)).json()

    assert carol["name"].startswith("site-")
    assert (carol["email"], carol["projects"][0]["roles"]) == ("carol@site.example", ["publisher"])
    bindings = installation.service.ask("GET", f"/users/{carol['name']}/bindings")["bindings"]
    assert [(each["subject"], each["by_login"]) for each in bindings] == [("carol", True)]
    reader = installation.site.token("carol", claims={"entitlements": f"{GROUP}:role=reader"})
    assert installation.bearer(reader).json()["projects"][0]["roles"] == ["consumer"]
    made, changed = [each for each in installation.read_events("logins:") if each["actor"] == carol["name"]]
    assert (made["action"], made["address"]) == ("logins:create", "127.0.0.1")
    assert made["request"]
    assert (changed["action"], changed["reason"]) == ("logins:roles", "entitlements of issuer site")
    check_refusal(installation.bearer(installation.site.token("dave")), "gives it a role here (issuer site)")


def test_bindings_may_be_seen_by_whom_they_bind_and_changed_by_administrators_only(installation: Installation) -> None:
    assert installation.bearer(installation.shown, path="/users/alice/bindings").json()["bindings"][0]["name"] == "work"
    assert installation.bearer(installation.shown, path="/users/admin/bindings").status_code in (401, 403)
    assert installation.bearer(installation.shown, "DELETE", "/users/alice/bindings/work").status_code in (401, 403)
    assert installation.bearer(installation.shown, path="/issuers").status_code in (401, 403)
    taken = {"issuer": installation.egi.url, "subject": "alice"}
    assert installation.service.call("POST", "/users/admin/bindings/work", taken).status_code == 409


def test_tokens_that_say_nothing_are_asked_about_once_a_minute(installation: Installation) -> None:
    token = installation.site.opaque("frank", entitlements=[f"{GROUP}:role=publisher"])
    before = installation.site.requests[INTROSPECT]

    assert [installation.bearer(token).status_code for _ in range(3)] == [200, 200, 200]
    assert installation.site.requests[INTROSPECT] == before + 1
    installation.site.withdraw(token)
    installation.service.clock.advance(61_000)
    check_refusal(installation.bearer(token), "not active")


def test_issuers_are_shown_without_their_secrets(installation: Installation) -> None:
    assert installation.all_goes_on()
    shown = installation.service.ask("GET", "/issuers")["issuers"]
    egi, site = shown[0], next(each for each in shown if each["name"] == "site")

    assert (egi["name"], egi["source"], egi["client_secret"]) == ("egi", "settings", "")
    assert (site["name"], site["source"], site["client_secret"]) == ("site", "registry", "***")
    assert site["roles"][0] == {"entitlement": f"{GROUP}:role=publisher", "project": "P", "roles": ["publisher"]}
    assert len(egi["keys"]["ids"]) == 2
    assert egi["keys"]["fetched_on"]
    kept = installation.service.ask("PUT", "/issuers/site", site)
    assert kept["client_secret"] == "***"
    assert (
        installation.service.call("PUT", "/issuers/egi", {"url": egi["url"], "audiences": ["ams"]}).status_code == 409
    )
    assert installation.service.call("DELETE", "/issuers/egi").status_code == 409
    assert installation.service.call("POST", "/issuers/bad", {"url": "bad", "audiences": ["ams"]}).status_code == 400


def test_no_token_is_written_anywhere(installation: Installation) -> None:
    files = [path for path in installation.data.rglob("*") if path.is_file() and path.suffix != ".token"]
    written = b"".join(path.read_bytes() for path in files)
    assert installation.shown.encode() not in written
    assert installation.own.encode() not in written
