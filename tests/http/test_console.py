from pathlib import Path
from unittest.mock import AsyncMock

import httpx
import pytest
from starlette.applications import Starlette

from ams.http.console import NOT_BUILT_TEXT, Console, ConsoleLogin, policy

LOGIN = ConsoleLogin(
    "egi", "https://aai.example.org", "ams-console",
    authorization_endpoint="https://aai.example.org/auth", token_endpoint="https://token.example.net:8443/token",
)  # fmt: skip
PAGE = "<!doctype html><title>AMS</title>" + " " * 300


@pytest.fixture
def browser(tmp_path: Path) -> httpx.AsyncClient:
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "console-0A1B2C3D.js").write_text("//" + "a" * 1000)
    return client_of(tmp_path)


def client_of(folder: Path) -> httpx.AsyncClient:
    app = Starlette(routes=Console(AsyncMock(return_value=[LOGIN]), folder).routes())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://ams")


async def test_the_page_runs_its_own_scripts_and_asks_the_service_and_issuers_only(browser: httpx.AsyncClient) -> None:
    said = (await browser.get("/console/")).headers["content-security-policy"]
    allowed = dict(each.split(" ", 1) for each in said.split("; "))

    assert allowed["default-src"] == allowed["frame-ancestors"] == allowed["base-uri"] == "'none'"
    assert allowed["script-src"] == allowed["style-src"] == "'self'"
    assert allowed["connect-src"] == "'self' https://token.example.net:8443"
    # An issuer that is down adds no origin to the policy.
    assert "connect-src 'self';" in policy([ConsoleLogin("egi", "https://aai.example.org", "x", error="away")])


@pytest.mark.parametrize("path", ["/console/", "/console/console-0A1B2C3D.js", "/console/config.json", "/console/no"])
async def test_no_answer_may_be_framed_or_taken_for_another_type(browser: httpx.AsyncClient, path: str) -> None:
    headers = (await browser.get(path)).headers

    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "set-cookie" not in headers


async def test_hashed_files_are_cached_the_page_is_not_and_both_are_compressed(browser: httpx.AsyncClient) -> None:
    script, page = (await browser.get("/console/console-0A1B2C3D.js")), (await browser.get("/console/"))
    assert "immutable" in script.headers["cache-control"]
    assert page.headers["cache-control"] == "no-cache"
    assert (await browser.get("/console/", headers={"if-none-match": page.headers["etag"]})).status_code == 304

    for coding, shown in (("gzip", "gzip"), ("identity", None)):
        answer = await browser.get("/console/", headers={"accept-encoding": coding})
        assert (answer.headers.get("content-encoding"), answer.text) == (shown, PAGE)


@pytest.mark.parametrize("address", ["/", "/console"])
async def test_the_root_leads_to_the_page_behind_a_proxy_too(browser: httpx.AsyncClient, address: str) -> None:
    answer = await browser.get(address, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (308, "console/")
    assert (await browser.head("/console/")).status_code == 200
    assert (await browser.post("/console/")).status_code == 405


async def test_the_page_is_told_where_people_log_in_and_no_secret(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/console/config.json")).json()["issuers"] == [
        {"name": "egi", "issuer": "https://aai.example.org", "client_id": "ams-console",
         "authorization_endpoint": "https://aai.example.org/auth",
         "token_endpoint": "https://token.example.net:8443/token"}
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "no.js", "/etc/passwd"])
async def test_nothing_but_its_files_is_served(browser: httpx.AsyncClient, name: str) -> None:
    assert (await browser.get(f"/console/{name}")).status_code == 404


async def test_an_installation_without_the_files_says_how_to_build_them(tmp_path: Path) -> None:
    answer = await client_of(tmp_path).get("/console/")
    assert (answer.status_code, answer.text) == (404, NOT_BUILT_TEXT)
