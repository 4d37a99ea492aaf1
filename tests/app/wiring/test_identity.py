"""What of identity stops a start, and what its parts tell each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from ams.app.wiring.identity import Identity, identity_of, trusted_by
from ams.core.clock import SystemClock
from ams.core.errors import BadSettings, TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import BindingName, IssuerName
from ams.core.settings import Settings
from ams.storage.registry.registry import Registry
from demo.issuer import ExampleIssuer
from tests.support.administration import make_user, open_registry

GOOD = '[[issuer]]\nname = "egi"\nurl = "https://issuer.example"\naudiences = ["ams"]\n'


def test_issuers_of_the_settings_are_read_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(GOOD)

    (issuer,) = trusted_by(Settings(issuers_file=str(tmp_path / "issuers.toml"))).issuers

    assert (issuer.name, issuer.url, issuer.audiences) == ("egi", "https://issuer.example", ("ams",))
    assert trusted_by(Settings()).issuers == ()


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("issuers_file", "bad.toml"),
        ("issuers_file", "missing.toml"),
        ("issuers_ca_file", "bad.toml"),
        ("issuers_allow", "here"),
    ],
)
def test_a_bad_setting_stops_the_start_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, setting: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text(GOOD + "audience = 1\n")

    with pytest.raises(BadSettings, match=f"^{name}[ :]") as stopped:
        trusted_by(replace(Settings(), **{name: setting}))  # type: ignore[arg-type]  # all are texts

    assert "\n" not in stopped.value.message


@asynccontextmanager
async def running(registry: Registry, folder: Path, **settings: str) -> AsyncIterator[Identity]:
    chosen = Settings(issuers_allow="127.0.0.0/8", **settings)  # type: ignore[arg-type]  # all of these are texts
    engines: Any = SimpleNamespace(
        registry=registry, clock=SystemClock(), folder=SimpleNamespace(issuers=str(folder / "issuers"))
    )
    trail: Any = None
    identity = identity_of(chosen, trusted_by(chosen), engines, trail, ())
    async with identity.running():
        yield identity


async def test_a_change_of_issuers_on_another_node_forgets_what_was_verified_on_this(tmp_path: Path) -> None:
    with ExampleIssuer() as example:
        issuer = Issuer(IssuerName("example"), example.url, audiences=("ams",))
        async with open_registry(tmp_path) as registry, running(registry, tmp_path) as identity:
            await registry.issuers.create(issuer, None)
            alice = await make_user(registry, "alice")
            await registry.bindings.create(alice.id, BindingName("b"), example.url, "alice", created_by=None)
            token = example.token()
            assert (await identity.logins.principal(token)).name == "alice"

            # As it is heard of from another node: nobody tells the keys, which stay good.
            await registry.issuers.update(issuer.name, replace(issuer, audiences=("other",)))

            with pytest.raises(TokenRefused, match="for another audience"):
                await identity.logins.principal(token)


async def test_the_log_says_at_the_start_which_issuers_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(GOOD)
    async with open_registry(tmp_path) as registry:
        await registry.issuers.create(Issuer(IssuerName("egi"), "https://b.example", audiences=("ams",)), None)
        with capture_logs() as lines:
            async with running(registry, tmp_path, issuers_file=str(tmp_path / "issuers.toml")):
                pass

    assert [line["issuer"] for line in lines if line["event"] == "issuer.shadowed"] == ["egi"]
    assert [line["believed"] for line in lines if line["event"] == "issuers"] == [{"egi": "settings"}]
