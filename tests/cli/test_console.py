"""`ams open`: an address that logs a browser in, for a while."""

import re
import ssl
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.cli.conftest import Ams


def test_the_address_holds_a_short_lived_token_in_its_fragment_alone(
    ams: Ams, project: str, environment: dict[str, str]
) -> None:
    ran = ams("open", "--print", "--expires-in", "30m")

    address = urlsplit(ran.stdout.strip())
    login = parse_qs(address.fragment)
    assert (address.path, address.query, login["project"]) == ("/console/", "", [project])
    endpoint = environment["AMS_ENDPOINT"]
    trusted = ssl.create_default_context(cafile=environment["AMS_CA"])
    headers = {"x-api-key": login["token"][0]}
    found = httpx.get(f"{endpoint}/v1/users/profile", headers=headers, verify=trusted, trust_env=False)
    assert found.status_code == 200
    name = re.search(r"ams token revoke (console-[0-9a-f]+)", ran.stderr)
    assert name is not None
    assert login["name"] == [name[1]]
    shown = ams("token", "list", "-o", "json").stdout
    assert name[1] in shown
    assert login["token"][0] not in shown


def test_a_duration_that_is_none_is_a_mistake_of_usage(ams: Ams, project: str) -> None:
    ran = ams("open", "--print", "--expires-in", "soon")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert "--expires-in 'soon' is no duration" in ran.stderr
