"""The site of the documents, built as `make site` does, and read in Chromium."""

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from ams import __version__
from ams.cli.main import COMMANDS, SERVICE_COMMANDS
from tests.support.documents import ROOT
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.long

LOADED = re.compile(
    r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//'
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run([sys.executable, "website/build.py", str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        expect.set_options(timeout=PATIENCE_SECONDS * 1_000)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


def test_every_document_is_a_page_and_loads_nothing_from_other_hosts(site: Path) -> None:
    pages = {each.relative_to(site / __version__).with_suffix("") for each in (site / __version__).rglob("*.html")}
    documents = {each.relative_to(ROOT / "docs").with_suffix("") for each in (ROOT / "docs").rglob("*.md")}

    missing = {each for each in documents if each not in pages and each.with_name("index") not in pages}
    assert missing == set()
    assert [each for each in site.rglob("*.html") if LOADED.search(each.read_text())] == []


def test_the_page_of_commands_has_each_of_them(site: Path) -> None:
    text = (site / __version__ / "reference" / "commands.html").read_text()
    assert [name for name in COMMANDS | SERVICE_COMMANDS if f">ams {name}<" not in text] == []


def test_the_site_is_found_searched_and_shows_the_http_api(page: Page, address: str) -> None:
    answered: set[str] = set()
    page.on("response", lambda response: answered.add(response.url.split("/")[2]))

    page.goto(address)
    expect(page.get_by_role("heading", name="AMS, the ARGO Messaging Service")).to_be_visible()
    page.get_by_role("textbox", name="Search").fill("dead letter policy")
    expect(page.locator(".md-search-result__item").first).to_contain_text("dead letter")
    page.goto(f"{address}/{__version__}/reference/http-calls.html")
    page.get_by_role("link", name="Every call with its parameters and answers").click()
    expect(page.get_by_role("heading", name="Store messages at the end of a topic")).to_be_visible()

    assert answered == {address.removeprefix("http://")}
