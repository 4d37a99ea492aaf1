"""What of identity stops a start."""

from dataclasses import replace
from pathlib import Path

import pytest

from ams.errors import BadSettings
from ams.settings import Settings
from ams.wiring.identity import trusted_by

GOOD = '[[issuer]]\nname = "egi"\nurl = "https://issuer.example"\naudiences = ["ams"]\n'


def test_issuers_of_the_settings_are_read_before_anything_is_opened(tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(GOOD)

    (issuer,) = trusted_by(Settings(issuers_file=str(tmp_path / "issuers.toml"))).issuers

    assert (issuer.name, issuer.url, issuer.audiences) == ("egi", "https://issuer.example", ("ams",))
    assert trusted_by(Settings()).issuers == ()


@pytest.mark.parametrize(
    ("name", "setting"),
    [("issuers_file", "bad.toml"), ("issuers_file", "missing.toml"), ("issuers_ca_file", "bad.toml")],
)
def test_a_bad_file_stops_the_start_with_one_line(tmp_path: Path, name: str, setting: str) -> None:
    (tmp_path / "bad.toml").write_text(GOOD + "audience = 1\n")

    with pytest.raises(BadSettings, match=f"^{name} ") as stopped:
        trusted_by(replace(Settings(), **{name: str(tmp_path / setting)}))  # type: ignore[arg-type]  # both are texts

    assert "\n" not in stopped.value.message


def test_networks_that_are_none_stop_the_start() -> None:
    with pytest.raises(BadSettings, match="^issuers_allow: "):
        trusted_by(Settings(issuers_allow="here"))
