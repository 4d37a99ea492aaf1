"""The console in a real Chromium: when something of a page is seen, what comes over the wire, and a long list."""

import shutil
from collections.abc import Iterator
from statistics import median

from playwright.sync_api import Browser, Page, sync_playwright

from bench import preparing
from bench.processes import Failed, Service
from bench.report import Result, at_most
from bench.run import FULL, Bench

PAINT = 300.0
"""Milliseconds until something of the page is seen."""
SIZE = 150_000
"""Bytes on the wire, of all its files."""
TOPICS, QUICK_TOPICS = 10_000, 500
TIMES = 5
SETTLED = 2_000
"""Milliseconds until a page has asked for all it shows; its live view goes on."""
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SENT = """() => [performance.getEntriesByType('navigation')[0], ...performance.getEntriesByType('resource')]
    .reduce((sum, each) => sum + each.transferSize, 0)"""


def console(bench: Bench) -> Iterator[Result]:
    """Yield when something is seen and how much is sent, and how long a list of topics and a search in it take."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise Failed("Chromium is needed (the Debian package chromium)")
    topics = TOPICS if bench.plan == FULL else QUICK_TOPICS
    with bench.service() as service:
        preparing.topics(service, preparing.project(service, "BENCH"), "topic", topics)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            results = [_opening(browser, service), _list(browser, service, topics)]
            browser.close()
    yield from results


def _opening(browser: Browser, service: Service) -> Result:
    paints, sizes = [], []
    for _ in range(TIMES):  # each with nothing kept from before
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(f"{service.url}/console/")
            page.get_by_label("Token").wait_for()
            page.wait_for_function(_PAINTED)  # it is noted a moment after it was seen
            paints.append(page.evaluate(_PAINTED))
            sizes.append(page.evaluate(_SENT))
    figures = {"first_paint_ms": median(paints), "bytes": median(sizes)}
    over = max(figures["first_paint_ms"] / PAINT, figures["bytes"] / SIZE)
    return Result("console", {}, figures, over, "300 ms and 150 kB", at_most(1))


def _list(browser: Browser, service: Service, topics: int) -> Result:
    with browser.new_context() as context:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{service.url}/console/#token={service.token}")
        page.get_by_role("button", name="Log out").wait_for()
        asked.clear()
        overview = _milliseconds(page, "location.hash = '#/p/BENCH'", "document.querySelector('dl.stats')")
        page.wait_for_timeout(SETTLED)
        requests = len(asked)
        listed = _milliseconds(page, "location.hash = '#/p/BENCH/topics'", "document.querySelector('td a')")
        search = """const box = document.querySelector('input[type=search]');
            box.value = 'topic'; box.dispatchEvent(new Event('input', {bubbles: true}))"""
        searched = _milliseconds(page, search, "location.hash.includes('q=topic')")
    figures = {"overview_ms": overview, "requests": requests, "listed_ms": listed, "searched_ms": searched}
    return Result("console-list", {"topics": topics}, figures, listed / 1000, "a second")


def _milliseconds(page: Page, act: str, there: str) -> float:
    """Return how long it takes, by the page's own clock, until what is acted is drawn."""
    script = f"""async () => {{
        const began = performance.now();
        {act};
        while (!({there})) await new Promise(requestAnimationFrame);
        await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
        return performance.now() - began;
    }}"""
    return float(page.evaluate(script))
