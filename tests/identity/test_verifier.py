"""The verifier: its cache of tokens, lifetimes in it, and events that invalidate it."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer, RoleRule, Verified
from ams.core.names import IssuerName
from ams.identity import verifier as rules
from ams.identity.verifier import Verifier, roles_of
from ams.storage.database.invalidation import Cache
from tests.identity.signing import ISSUER as PLAIN
from tests.identity.signing import NOW, SAID, Issuers, public_key, sign_claims
from tests.support.clock import ManualClock

GROUP = "urn:mace:egi.eu:group"
VO = "urn:mace:egi.eu:group:vo"
ISSUER = replace(PLAIN, roles=tuple(RoleRule(f"{GROUP}:{n}", "P", ("publisher",)) for n in ("a", "b", "c", "499")))
ASKED = replace(ISSUER, introspect="opaque", client_id="ams", client_secret="s3cret")
ALWAYS = replace(ASKED, introspect="always")
OTHER = Issuer(IssuerName("other"), "https://other.example", audiences=("ams",))


@dataclass
class VerifierSetup(Issuers):
    known: list[Issuer] = field(default_factory=lambda: [ISSUER, OTHER])
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.verifier = Verifier(self, self, self, self.clock, 30, Cache(100))

    async def refusal(self, token: str) -> str:
        with pytest.raises(TokenRefused) as refused:
            await self.verifier.verify(token)
        return refused.value.message


@pytest.fixture
def setup() -> VerifierSetup:
    return VerifierSetup()


def without_suspending(verifier: Verifier, token: str) -> Verified:
    with pytest.raises(StopIteration) as done:
        verifier.verify(token).send(None)
    verified = done.value.value
    assert isinstance(verified, Verified)
    return verified


async def test_a_token_says_who_shows_it(setup: VerifierSetup) -> None:
    person = {"email": "alice@example.org", "given_name": "Alice", "family_name": "Ex\u00e4mple"}
    member, writer = f"{GROUP}:a:role=member#x", f"{GROUP}:b:role=writer"
    entitlements = {"entitlements": [member, "urn:other", writer, member], "eduperson_entitlement": f"{GROUP}:c"}

    assert await setup.verifier.verify(sign_claims({**SAID, **person, **entitlements})) == Verified(
        ISSUER.name, ISSUER.url, "alice", (NOW + 3630) * 1000, (member, writer, f"{GROUP}:c"), "alice@example.org",
        "Alice", "Ex\u00e4mple",
    )  # fmt: skip


async def test_a_token_is_remembered_without_suspending_and_expires_to_the_second(setup: VerifierSetup) -> None:
    token = sign_claims()
    verified = await setup.verifier.verify(token)
    assert without_suspending(setup.verifier, token) is verified
    setup.clock.advance(3_629_999)
    await setup.verifier.verify(token)
    assert setup.looked_up == 1

    setup.clock.advance(1)
    for _ in range(2):
        assert await setup.refusal(token) == "The token has expired"


async def test_a_key_that_is_withdrawn_takes_its_tokens_with_it(setup: VerifierSetup) -> None:
    token = sign_claims()
    await setup.verifier.verify(token)
    setup.generations += 1
    await setup.verifier.verify(token)
    assert setup.looked_up == 2

    setup.generations += 1
    setup.keys[ISSUER.url] = public_key(private=ec.generate_private_key(ec.SECP256R1()))
    assert await setup.refusal(token) == "The token's signature is wrong"


async def test_a_token_is_looked_at_again_once_issuers_changed(setup: VerifierSetup) -> None:
    token = sign_claims()
    await setup.verifier.verify(token)
    setup.known = [replace(ISSUER, audiences=("other",))]
    await setup.verifier.verify(token)

    setup.verifier.forget()
    assert await setup.refusal(token) == "The token is for another audience: ams"

    setup.known, setup.answers["opaque"] = [ASKED], None
    await setup.refusal("opaque")
    setup.answers["opaque"] = {"sub": "alice", "aud": "ams"}
    setup.verifier.forget()
    assert (await setup.verifier.verify("opaque")).subject == "alice"


async def test_tokens_of_nobody_are_refused(setup: VerifierSetup) -> None:
    assert await setup.refusal(sign_claims({**SAID, "iss": 'https://e.example/"x'})) == (
        "The token is of an issuer that is not known here: https://e.example/?x"
    )
    assert await setup.refusal("opaque") == "The token is not known here"
    assert await setup.refusal("") == "The token has characters that are in no token"
    assert await setup.refusal("a b") == "The token has characters that are in no token"
    assert await setup.refusal("x" * 16_385) == "The token is longer than 16384 characters"
    assert await setup.refusal(sign_claims({**SAID, "iss": OTHER.url})) == "The keys of the issuer cannot be had"
    assert setup.asked == []


async def test_an_issuer_is_asked_about_an_opaque_token_once_a_minute(setup: VerifierSetup) -> None:
    setup.known = [ASKED]
    setup.answers["opaque"] = {"active": True, "sub": "alice", "aud": "ams", "exp": NOW + 90, "email": "a@b"}

    verified = await setup.verifier.verify("opaque")
    assert verified == Verified(ISSUER.name, ISSUER.url, "alice", (NOW + 60) * 1000, email="a@b")
    setup.clock.advance(59_999)
    assert without_suspending(setup.verifier, "opaque") is verified
    setup.clock.advance(1)
    assert (await setup.verifier.verify("opaque")).expires_on == (NOW + 120) * 1000
    assert len(setup.asked) == 2

    setup.clock.advance(60_000)
    assert await setup.refusal("opaque") == "The token has expired"


async def test_a_clock_that_is_set_back_does_not_make_an_answer_last(setup: VerifierSetup) -> None:
    setup.known = [ASKED]
    setup.answers["opaque"] = {"sub": "alice", "aud": "ams"}
    await setup.verifier.verify("opaque")
    setup.clock.step(-3_600_000)
    setup.clock.advance(60_000)
    setup.answers["opaque"] = None

    assert await setup.refusal("opaque") == "The token is not active: it has expired, or was withdrawn"


async def test_a_token_that_is_not_active_is_asked_about_twice_a_minute(setup: VerifierSetup) -> None:
    setup.known = [ASKED]
    setup.answers["opaque"] = None
    for _ in range(3):
        assert await setup.refusal("opaque") == "The token is not active: it has expired, or was withdrawn"
    assert len(setup.asked) == 1

    setup.clock.advance(30_000)
    setup.answers["opaque"] = {"sub": "alice", "aud": "ams"}
    assert (await setup.verifier.verify("opaque")).subject == "alice"


async def test_only_so_many_refused_tokens_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_REFUSED", 2)
    setup = VerifierSetup(known=[ASKED], answers=dict.fromkeys("abc"))
    for token in "abcab":
        await setup.refusal(token)
    for token in "ab":
        await setup.refusal(token)

    assert "".join(setup.asked) == "abcab"


async def test_an_issuer_that_cannot_be_asked_is_asked_the_next_time(setup: VerifierSetup) -> None:
    setup.known = [ASKED]
    for _ in range(2):
        with pytest.raises(TokenRefused, match="cannot be asked") as refused:
            await setup.verifier.verify("opaque")
        assert refused.value.later
    assert len(setup.asked) == 2


async def test_an_issuer_is_asked_about_its_jwts_as_well_where_it_always_is(setup: VerifierSetup) -> None:
    setup.known = [ALWAYS]
    token = sign_claims({**SAID, "entitlements": [f"{GROUP}:a"]})
    setup.answers[token] = {"active": True, "entitlements": [f"{GROUP}:b"], "exp": NOW + 7200}
    verified = await setup.verifier.verify(token)
    assert (verified.entitlements, verified.expires_on) == ((f"{GROUP}:b",), (NOW + 60) * 1000)
    assert without_suspending(setup.verifier, token) is verified

    setup.clock.advance(60_000)
    setup.answers[token] = None
    assert await setup.refusal(token) == "The token is not active: it has expired, or was withdrawn"


async def test_an_issuer_is_not_asked_about_what_it_did_not_sign(setup: VerifierSetup) -> None:
    setup.known = [ALWAYS]
    setup.keys[ISSUER.url] = public_key(private=ec.generate_private_key(ec.SECP256R1()))
    assert await setup.refusal(sign_claims()) == "The token's signature is wrong"
    assert setup.asked == []


@pytest.mark.parametrize(("answer", "message"), [
    ({"sub": "bob"}, "The token's issuer says that it is another's"),
    ({"iss": OTHER.url}, "The token's issuer says that it is another's"),
    ({"exp": NOW - 60}, "The token has expired"),
    ({"sub": None}, "The token's issuer says that it is another's"),
])  # fmt: skip
async def test_what_an_issuer_says_of_a_jwt_must_fit_it(setup: VerifierSetup, answer: Any, message: str) -> None:
    setup.known = [ALWAYS]
    token = sign_claims()
    setup.answers[token] = answer
    assert await setup.refusal(token) == message


@pytest.mark.parametrize(("answer", "message"), [
    ({"sub": 7, "aud": "ams"}, "The token does not say whose it is"),
    ({"sub": "a"}, "The token is for another audience: none"),
    ({"sub": "a", "aud": "ams", "iss": OTHER.url}, "The token is of another issuer"),
    ({"sub": "a", "aud": "ams", "exp": float("nan")}, "The token's exp is no time"),
])  # fmt: skip
async def test_what_is_said_of_an_opaque_token_is_checked(setup: VerifierSetup, answer: Any, message: str) -> None:
    setup.known = [ASKED]
    setup.answers["opaque"] = answer
    assert await setup.refusal("opaque") == message


@pytest.mark.parametrize(("said", "message"), [
    ({"entitlements": [f"urn:{number}" for number in range(1000)]}, "The token has more than 500 entitlements"),
    ({"entitlements": ["urn:a"] * 501}, "The token has more than 500 entitlements"),
    ({"entitlements": ["a"] * 300, "eduperson_entitlement": ["a"] * 201}, "The token has more than 500"),
    ({"entitlements": ["urn:a", 7]}, "The token has entitlements that are no text"),
    ({"entitlements": 7}, "The token has entitlements that are no text"),
    ({"entitlements": None}, "The token has entitlements that are no text"),
    ({"entitlements": {"urn:a": 1}}, "The token has entitlements that are no text"),
    ({"entitlements": [["urn:a"]]}, "The token has entitlements that are no text"),
])  # fmt: skip
async def test_entitlements_are_texts_and_not_too_many(setup: VerifierSetup, said: Any, message: str) -> None:
    assert (await setup.refusal(sign_claims({**SAID, **said}))).startswith(message)
    setup.known = [ASKED]
    setup.answers["opaque"] = {"sub": "a", "aud": "ams", **said}
    assert (await setup.refusal("opaque")).startswith(message)


async def test_of_five_hundred_entitlements_those_that_meet_a_rule_are_kept(setup: VerifierSetup) -> None:
    setup.known = [ASKED]
    entitlements = [f"{GROUP}:{number}" for number in range(500)]
    setup.answers["opaque"] = {"sub": "a", "aud": "ams", "entitlements": entitlements}
    assert (await setup.verifier.verify("opaque")).entitlements == (f"{GROUP}:499",)


async def test_names_are_what_people_can_read(setup: VerifierSetup) -> None:
    person = {"email": ["a"], "given_name": "A\x00l\nice\ud800", "family_name": "x" * 300}
    verified = await setup.verifier.verify(sign_claims({**SAID, **person}))
    assert (verified.email, verified.first_name, verified.last_name) == ("", "Alice", "x" * 255)


@pytest.mark.parametrize(("rule", "value", "is_met"), [
    (VO, VO, True), (VO, f"{VO}:role=member", True), (VO, f"{VO}#aai.egi.eu", True),
    (VO, f"{VO}:role=member#aai.egi.eu", True), (VO, VO.replace("urn:mace:egi.eu", "URN:MACE:EGI.EU"), True),
    (f"{VO}:role=member", f"{VO}:role=member#aai.egi.eu", True), (f"{VO}:role=member", VO, False),
    (f"{VO}:role=member", f"{VO}:role=manager", False), (f"{VO}#aai.egi.eu", f"{VO}:role=member#aai.egi.eu", True),
    (f"{VO}#aai.egi.eu", VO, False), (f"{VO}#aai.egi.eu", f"{VO}#other.example", False), (VO, f"{VO}:sub", False),
    (f"{VO}:sub", VO, False), (f"{VO}:role=member", f"{VO}:sub:role=member", False),
    (VO, "urn:mace:other.example:group:vo", False), (VO, f"{VO}x", False), (VO, "no entitlement", False),
    (VO, "", False), ("no entitlement", "no entitlement", False),
])  # fmt: skip
def test_a_rule_is_met_by_its_group_and_by_what_else_it_names(rule: str, value: str, is_met: bool) -> None:
    roles = roles_of([RoleRule(rule, "P", ("publisher",))], [value])
    assert roles == {"P": frozenset({"publisher"} if is_met else ())}


def test_roles_of_several_rules_add_up_and_projects_without_any_are_named() -> None:
    rules = [RoleRule(f"{VO}:role=writer", "P", ("publisher",)), RoleRule(VO, "P", ("consumer",)),
             RoleRule(f"{VO}:role=boss", "Q", ("project_admin",))]  # fmt: skip

    assert roles_of(rules, [f"{VO}:role=writer"]) == {"P": {"publisher", "consumer"}, "Q": frozenset()}
    assert roles_of(rules, []) == {"P": frozenset(), "Q": frozenset()}
    assert roles_of([], [VO]) == {}
