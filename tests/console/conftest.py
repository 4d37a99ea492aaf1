"""A real browser on the console of a real service."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.service import LiveService, live_service

ROOT = Path(__file__).parents[2]
SECONDS = 30
EXPECTED = ("the server responded with a status of", "Failed to load resource: net::")
"""What the browser itself says of a request that fails, which pages show."""

expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """Run one service for all tests, with the console as the clone's sources are now."""
    for what in ("packages", "build"):
        subprocess.run(["scripts/console", what], cwd=ROOT, check=True, timeout=100, stdout=subprocess.DEVNULL)
    data = tmp_path_factory.mktemp("console") / "ams-data"
    flags = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--max-message-bytes", "16MB")
    with live_service(data, *flags) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium for the tests of a module: no other event loop may run beside Playwright's."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield found
        found.close()


class Api:
    """The API as an administrator asks it."""

    def __init__(self, service: LiveService) -> None:
        self.token = service.token
        headers = {"x-api-key": self.token}
        self._http = httpx.Client(base_url=f"{service.base_url}/v1", headers=headers, trust_env=False, timeout=SECONDS)

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        answer = self._http.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def api(service: LiveService) -> Iterator[Api]:
    asked = Api(service)
    yield asked
    asked.close()


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> str:
    """Make a project for one test."""
    name = re.sub(r"\W", "-", request.node.name).strip("-")
    api("POST", f"/projects/{name}", {})
    return name


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, service: LiveService) -> Iterator[Opened]:
    """Open the console in a tab of its own, logged in; fails a test of which a page broke a rule or made a mistake."""
    said: list[str] = []
    contexts = []

    def tab(at: str = "", token: str = service.token, **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda line: said.append(line.text) if line.type in ("error", "warning") else None)
        page.goto(f"{service.base_url}/console/{f'#token={token}' if token else ''}")
        if token:
            expect(page.get_by_role("button", name="Log out")).to_be_visible()
        if at:
            page.goto(f"{service.base_url}/console/#/{at}")
        return page

    yield tab
    for context in contexts:
        context.close()
    assert [line for line in said if not any(each in line for each in EXPECTED)] == []


def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong with a page as it is shown now, by the rules of WCAG A and AA."""
    text = (ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js").read_text()
    # Evaluated by the debugger, which the page's policy is not for.
    page.evaluate(f"() => {{ {text}\n; window.axe = window.axe || axe; }}")
    found = page.evaluate("async () => (await window.axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html)])")
    return [json.dumps(each) for each in found]
