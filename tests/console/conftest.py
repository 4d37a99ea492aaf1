"""A real browser on the console of a real service."""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.support.service import LiveService, live_service

ROOT = Path(__file__).parents[2]
SECONDS = 60
EXPECTED_MESSAGES = ("the server responded with a status of", "Failed to load resource: net::")
"""The browser's own messages about a failed request, which the console shows."""

expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    for what in ("packages", "build"):
        subprocess.run(["scripts/console", what], cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL)
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
    def __init__(self, service: LiveService) -> None:
        self.token, self._service = service.token, service

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        return self._service.ask(method, path, body)

    def topic(self, project: str, *bodies: bytes, name: str = "t") -> None:
        self("PUT", f"/projects/{project}/topics/{name}")
        if bodies:
            self.publish(project, *({"data": data(each)} for each in bodies), topic=name)

    def publish(self, project: str, *messages: dict[str, Any], topic: str = "t") -> None:
        self("POST", f"/projects/{project}/topics/{topic}:publish", {"messages": list(messages)})

    def subscription(self, project: str, name: str = "s", topic: str = "t", **more: Any) -> None:
        body = {"topic": f"projects/{project}/topics/{topic}", **more}
        self("PUT", f"/projects/{project}/subscriptions/{name}", body)


@pytest.fixture
def api(service: LiveService) -> Api:
    return Api(service)


@pytest.fixture
def project(api: Api, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", request.node.name).strip("-")
    api("POST", f"/projects/{name}", {})
    return name


TabOpener = Callable[..., Page]


@pytest.fixture
def open_tab(browser: Browser, service: LiveService) -> Iterator[TabOpener]:
    """Open the console in its own tab, logged in; a broken rule or an error of a page fails the test."""
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
    assert [line for line in said if not any(each in line for each in EXPECTED_MESSAGES)] == []


def button(page: Page | Locator, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def fill_in(page: Page, act: str, fields: Mapping[str, str], place: Locator | None = None) -> None:
    button(place or page, act)
    for label, text in fields.items():
        page.get_by_label(label, exact=label == "Name").fill(text)
    button(page.get_by_role("dialog"), act)


def confirm(page: Page, act: str, name: str) -> None:
    page.get_by_label(f"Type {name} to go on").fill(name)
    button(page.get_by_role("dialog"), act)


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def data(text: bytes) -> str:
    return base64.b64encode(text).decode()


def violations(page: Page) -> list[str]:
    """Return axe-core's violations of WCAG A and AA on the current page."""
    text = (ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js").read_text()
    # Evaluated by the debugger, to which the page's content security policy does not apply.
    page.evaluate(f"() => {{ {text}\n; window.axe = window.axe || axe; }}")
    found = page.evaluate("async () => (await window.axe.run()).violations.map(v => [v.id, v.nodes.map(n => n.html)])")
    return [json.dumps(each) for each in found]
