"""Pictures of every page of the console, to look at: light, dark, and at the width of a phone.

`python -m tests.console.pictures FOLDER`, or `make console-pictures FOLDER=pictures`, starts a service and uses it for
a few minutes, so that plots have data. Then it draws each page.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from ams.client import Client, Message
from ams.client.wire.projects import create_member, create_project
from ams.client.wire.subscriptions import create_subscription
from ams.client.wire.topics import create_schema, update_schema
from ams.client.wire.users import register
from ams.wire.push import PushConfigBody
from ams.wire.users import UserBody
from tests.support.service import LiveService, live_service

ROOT = Path(__file__).parents[2]
PROJECT = "garden"
MODES: Mapping[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 860}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 860}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
PUSHED_SUBSCRIPTION = f"p/{PROJECT}/subscriptions/alerts"
SETTLE_SECONDS = 1.5  # seconds until a page has drawn what it loaded


def pages(project: str, topic: str, subscription: str, schema: str) -> dict[str, str]:
    """Return the addresses of all pages, by the names of their pictures."""
    here = f"p/{project}"
    t, s, x = f"{here}/topics/{topic}", f"{here}/subscriptions/{subscription}", f"{here}/schemas/{schema}"
    return {
        "projects": "", "overview": here, "topics": f"{here}/topics", "topic": t, "messages": f"{t}?tab=messages",
        "publish": f"{t}?tab=publish", "schema": f"{t}?tab=schema", "topic-access": f"{t}?tab=access",
        "subscriptions": f"{here}/subscriptions", "subscription": s, "seek": f"{s}?tab=seek",
        "pull": f"{s}?tab=messages", "push": f"{s}?tab=push", "subscription-access": f"{s}?tab=access",
        "schemas": f"{here}/schemas", "schema-now": x, "schema-revisions": f"{x}?tab=revisions",
        "schema-try": f"{x}?tab=try", "members": f"{here}/members", "tokens": "tokens", "users": "users",
        "user": "users/admin", "user-tokens": "users/admin?tab=tokens", "user-identities": "users/admin?tab=bindings",
        "registrations": "registrations", "issuers": "issuers", "audit": "audit", "service": "service",
        "usage": "usage",
    }  # fmt: skip


PAGES = pages(PROJECT, "readings", "archive", "reading") | {
    "push-unverified": f"{PUSHED_SUBSCRIPTION}?tab=push", "dead-letters": f"{PUSHED_SUBSCRIPTION}?tab=dead",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.console.pictures", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0, help="of work before they are drawn (default: 3)")
    chosen = parser.parse_args()
    subprocess.run(["scripts/console"], cwd=ROOT, check=True)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with (tempfile.TemporaryDirectory() as data,
          live_service(Path(data) / "ams-data", "--min-free-bytes", "0", "--reserve-bytes", "0") as service,
          sync_playwright() as playwright):  # fmt: skip
        _work(service, chosen.minutes * 60)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, page in _draw_pages(browser, service):
            page.screenshot(path=chosen.folder / f"{name}.png")
        browser.close()
    print(f"{len(MODES) * (len(PAGES) + 1)} pictures are in {chosen.folder}")


def _work(service: LiveService, seconds: float) -> None:
    with Client(service.base_url, service.token) as client:
        client.call(create_project(PROJECT, "Sensors in beds, and who waters them"))
        project = client.project(PROJECT)
        for fields in ({"type": "string"}, {"type": "number", "minimum": 0}):
            made = create_schema if fields["type"] == "string" else update_schema
            client.call(made(PROJECT, "reading", {"type": "object", "properties": {"moisture": fields}}))
        client.call(create_member(PROJECT, "sensor", roles=["publisher"]))
        client.call(register("gardener", UserBody(email="gardener@garden.example", organization="Garden")))
        topic = project.topic("readings")
        topic.create()
        project.topic("alarms").create()
        archive, watering = project.subscription("archive"), project.subscription("watering")
        archive.create("readings")
        watering.create("readings")
        push = PushConfigBody("http_endpoint", "https://receiver.garden.example/alarms", dead_letter_topic="put-aside")
        project.topic("put-aside").create()
        client.call(create_subscription(PROJECT, "alerts", "alarms", push=push))
        until, number = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            wave = 10 + 8 * (int(time.monotonic() / 20) % 4)
            topic.publish([_reading(number + each) for each in range(wave)])
            number += wave
            if found := archive.pull(1000, wait=False):
                archive.acknowledge(found)
            if number % 3 == 0 and (few := watering.pull(20, wait=False)):
                watering.acknowledge(few)
            time.sleep(1)


def _reading(number: int) -> Message:
    body = {"bed": f"bed-{number % 4}", "moisture": round(0.3 + number % 17 / 40, 3), "sensor": number % 12}
    return Message(json.dumps(body).encode(), {"bed": body["bed"], "unit": "m3/m3"})


def _draw_pages(browser: Browser, service: LiveService) -> Iterator[tuple[str, Page]]:
    for mode, options in MODES.items():
        with browser.new_context(**options) as context:
            page = context.new_page()
            page.goto(f"{service.base_url}/console/")
            time.sleep(SETTLE_SECONDS)
            yield f"login-{mode}", page
            page.goto("about:blank")
            page.goto(f"{service.base_url}/console/#token={service.token}")
            page.get_by_role("button", name="Log out").wait_for()
            for name, place in PAGES.items():
                page.evaluate(f"location.hash = '#/{place}'")
                time.sleep(SETTLE_SECONDS)
                yield f"{name}-{mode}", page


if __name__ == "__main__":
    main()
