"""The console by keyboard, on a phone, in another time zone, hosted elsewhere, and with much data, by a real
Chromium."""

import base64
import functools
import http.server
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from ams.http.console import FILES
from tests.console.conftest import Api, TabOpener, button, data, fill_in, violations
from tests.console.pictures import pages
from tests.support.http_server import http_server
from tests.support.service import LiveService
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.long]


def test_all_is_reached_by_keys_and_the_focus_goes_where_one_is(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    page = open_tab(f"p/{project}/topics")
    page.get_by_role("link", name="t", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="t", exact=True)).to_be_focused()

    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Messages")).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Messages")).to_be_visible()

    page.get_by_role("button", name="Delete…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Type t to go on")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent") == "Delete…"

    page.locator("body").press("Tab")
    page.get_by_role("button", name="Skip to the page").press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_a_phone_shows_every_page_without_scrolling_sideways(open_tab: TabOpener, api: Api, project: str) -> None:
    long = "x" * 60
    api("PUT", f"/projects/{project}/topics/{long}")
    api("PUT", f"/projects/{project}/subscriptions/{long}", {"topic": f"projects/{project}/topics/{long}"})
    message = {"data": data(b"y" * 500), "attributes": {long: long * 10}}
    api("POST", f"/projects/{project}/topics/{long}:publish", {"messages": [message]})
    page = open_tab(viewport={"width": 390, "height": 844})
    for place in pages(project, long, long, "none").values():
        page.evaluate(f"location.hash = '#/{place}'")
        expect(page.get_by_role("heading").first).to_be_visible()
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place


def test_times_are_local_with_utc_beside(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    made = api("GET", f"/projects/{project}/topics/t")["created_on"]

    page = open_tab(f"p/{project}/topics/t", timezone_id="Asia/Tokyo", locale="de-DE")

    shown = page.locator(f'time[datetime="{made[:-1]}.000Z"]')
    expect(shown).to_contain_text(f"{made[:10]} {made[11:19]} UTC")
    hour = (int(made[11:13]) + 9) % 24
    expect(shown).to_contain_text(f"{hour:02}:{made[14:19]}")


def test_what_a_table_shows_is_in_the_address(open_tab: TabOpener, api: Api, project: str) -> None:
    for number in range(12):
        api("PUT", f"/projects/{project}/topics/topic-{number}")
    page = open_tab(f"p/{project}/topics")
    page.get_by_role("searchbox").fill("topic-1")
    expect(page.get_by_text("3 of 12 rows")).to_be_visible()
    button(page, "Topic")
    button(page, "Topic")

    there = page.url.partition("#/")[2]
    again = open_tab(there)

    expect(again.get_by_text("3 of 12 rows")).to_be_visible()
    names = again.locator("tbody a").all_inner_texts()
    assert names == ["topic-11", "topic-10", "topic-1"]


def test_where_nothing_is_stands_what_to_do_with_a_command_to_copy(open_tab: TabOpener, project: str) -> None:
    page = open_tab(f"p/{project}/topics", permissions=["clipboard-read", "clipboard-write"])
    expect(page.get_by_text("There are no topics yet.")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Copy")).click()
    assert page.evaluate("navigator.clipboard.readText()") == f"ams topics create readings --project {project}"


def test_huge_payloads_are_cut_with_a_way_to_all(open_tab: TabOpener, api: Api, project: str, tmp_path: Path) -> None:
    api.topic(project)
    huge = b"z" * 10_000_000
    many = {"data": "", "attributes": {f"name-{number}": str(number) for number in range(10_000)}}
    for message in ({"data": data(huge)}, many):
        api("POST", f"/projects/{project}/topics/t:publish", {"messages": [message]})

    page = open_tab(f"p/{project}/topics/t?tab=messages")

    body = page.get_by_role("article", name="Message 0")
    expect(body.get_by_text("text, 9.5 MiB")).to_be_visible()
    assert len(body.locator("pre").inner_text()) == 2_000
    with page.expect_download() as download:
        button(body, "Download")
    download.value.save_as(tmp_path / "whole")
    assert (tmp_path / "whole").read_bytes() == huge
    body.get_by_role("button", name=re.compile("^Show more")).click()
    expect(body.get_by_text("The rest is in the download.")).to_be_visible()

    attributes = page.get_by_role("article", name="Message 1")
    expect(attributes.locator("dt")).to_have_count(12)
    attributes.get_by_role("button", name=re.compile("Show all 10.?000 attributes")).click()
    expect(attributes.locator("dt")).to_have_count(10_000)


def test_avro_is_decoded_also_by_an_earlier_revision_of_its_schema(open_tab: TabOpener, api: Api, project: str) -> None:
    def record(*fields: tuple[str, str]) -> dict[str, object]:
        parts = [{"name": name, "type": kind} for name, kind in fields]
        return {"type": "avro", "schema": {"type": "record", "name": "reading", "fields": parts}}

    api("POST", f"/projects/{project}/schemas/reading", record(("bed", "string")))
    api("PUT", f"/projects/{project}/topics/t", {"schema": f"projects/{project}/schemas/reading"})
    api.publish(project, {"data": data(b"\x06old")})
    api("PUT", f"/projects/{project}/schemas/reading", record(("bed", "string"), ("moisture", "int")))
    api.publish(project, {"data": data(b"\x06new\x54")})

    page = open_tab(f"p/{project}/topics/t?tab=messages")

    shown = page.get_by_role("article").locator("pre")
    expect(shown).to_have_count(2)
    expect(page.get_by_text(re.compile("^Avro,"))).to_have_count(2)
    assert [json.loads(each) for each in shown.all_inner_texts()] == [{"bed": "new", "moisture": 42}, {"bed": "old"}]


def test_protocol_buffers_are_decoded_and_a_definition_is_edited_as_text(open_tab: TabOpener, api: Api, project: str):
    definition = 'syntax = "proto3"; message Reading { string bed_name = 1; }'
    schema = f"projects/{project}/schemas/reading"
    api("POST", f"/{schema}", {"type": "protobuf", "schema": {"definition": definition}})
    api("PUT", f"/projects/{project}/topics/t", {"schema": schema})
    api.publish(project, {"data": data(b"\x0a\x03new")})
    page = open_tab(f"p/{project}/topics/t?tab=messages")
    expect(page.get_by_text(re.compile("^Protocol Buffers,"))).to_be_visible()
    assert json.loads(page.get_by_role("article").locator("pre").inner_text()) == {"bedName": "new"}

    page = open_tab(f"p/{project}/schemas/reading")
    expect(page.get_by_text(definition)).to_be_visible()
    fill_in(page, "New revision", {"What payloads must be": definition.replace("bed_name", "place")})
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "place" in api("GET", f"/{schema}")["schema"]["definition"]


def test_messages_are_found_by_their_attributes_and_from_a_time_on(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    api.publish(project, *({"data": data(b"x"), "attributes": {"site": f"site-{each % 5}"}} for each in range(10)))
    page = open_tab(f"p/{project}/topics/t?tab=messages")

    page.get_by_role("textbox", name="Attributes").fill("site=site-2")
    button(page, "Show")
    expect(page.get_by_role("article")).to_have_count(2)
    expect(page.get_by_text("2 messages found")).to_be_visible()
    assert "attr=site%3Dsite-2" in page.url

    for time, count in (("2024-01-01T00:00", 2), ("2999-01-01T00:00", 0)):
        page.get_by_label("From a time").fill(time)
        button(page, "Show")
        expect(page.get_by_role("article")).to_have_count(count)
    page.get_by_label("From id").fill("3")
    expect(page.get_by_label("From a time")).to_have_value("")
    button(page, "Show")
    expect(page.get_by_role("article")).to_have_count(1)
    page.get_by_label("From a time").fill("2024-01-01T00:00")
    expect(page.get_by_label("From id")).to_have_value("")


def test_messages_pulled_by_hand_are_acknowledged_up_to_a_choice(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    api.subscription(project)
    api.publish(project, *[{"data": data(b"x")}] * 3)
    page = open_tab(f"p/{project}/subscriptions/s?tab=messages")

    button(page, "Pull 10 messages")
    second = page.get_by_role("article", name="Message 1")
    button(second, "Acknowledge up to here")

    expect(page.get_by_role("article")).to_have_count(1)
    assert api("GET", f"/projects/{project}/subscriptions/s:offsets")["current"] == 2


def test_a_schema_is_tried_on_messages_that_are_there(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project, b'{"bed": 1}', b'{"bed": "a"}', b'{"bed": "b"}')
    schema = {"type": "object", "properties": {"bed": {"type": "string"}}}
    api("POST", f"/projects/{project}/schemas/reading", {"type": "json", "schema": schema})
    page = open_tab(f"p/{project}/topics/t?tab=schema")

    # A required option is missing, so the browser does not send the form.
    expect(page.get_by_role("option", name="reading").last).to_be_attached()
    button(page, "Dry run")

    expect(page.get_by_text("Of 3 messages it would refuse 1.")).to_be_visible()
    assert "schema" not in api("GET", f"/projects/{project}/topics/t")


def test_dialogs_and_hidden_parts_break_no_rule_of_accessibility(open_tab: TabOpener, api: Api, project: str) -> None:
    base = f"/projects/{project}"
    for name in ("t", "dead"):
        api("PUT", f"{base}/topics/{name}")
    push = {"type": "http_endpoint", "pushEndpoint": "https://receiver.example/here", "deadLetterTopic": "dead",
            "maxDeliveryAttempts": 5}  # fmt: skip
    api("PUT", f"{base}/subscriptions/s", {"topic": f"projects/{project}/topics/t", "pushConfig": push})
    page = open_tab(f"p/{project}/subscriptions/s?tab=push")
    expect(page.get_by_role("heading", name="Verify the endpoint")).to_be_visible()
    assert violations(page) == []
    page.get_by_role("tab", name="Dead letters").click()
    expect(page.get_by_text("Nothing of this subscription is in dead.")).to_be_visible()
    assert violations(page) == []
    button(page, "Delete…")
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.evaluate("location.hash = '#/nowhere'")
    expect(page.get_by_role("heading", name="No such page")).to_be_visible()
    assert violations(page) == []
    button(page, "Log out")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    assert violations(page) == []


@pytest.fixture
def other_server(service: LiveService, tmp_path: Path) -> Iterator[str]:
    """Serve the console's files from another server, with another origin."""
    for each in FILES.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"service": service.base_url, "issuers": []}))
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http_server(functools.partial(quiet, directory=str(tmp_path))) as url:
        yield f"{url}/"


def test_its_files_work_elsewhere(open_tab: TabOpener, api: Api, service: LiveService, project: str, other_server: str):
    api.topic(project)
    page = open_tab(token="")
    page.goto(f"{other_server}#token={service.token}")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    page.goto(f"{other_server}#/p/{project}/topics/t?tab=messages&tail=1")
    expect(page.get_by_text("Following:")).to_be_visible()
    api.publish(project, {"data": data(b"across origins")})
    expect(page.get_by_text("across origins")).to_be_visible()

    page.get_by_role("tab", name="Publish").click()
    page.get_by_label("The body is base64").check()
    page.get_by_label("Body", exact=True).fill("no base64!")
    button(page, "Publish")
    expect(page.get_by_role("alert")).to_contain_text("The body is not base64")
    page.get_by_label("Body", exact=True).fill("")
    button(page, "Publish")
    expect(page.get_by_role("alert")).to_contain_text("Request")  # the id of it, in a header of the answer
    page.get_by_label("Body", exact=True).fill(base64.b64encode(b"x").decode())
    button(page, "Publish")
    expect(page.get_by_text("It has the id 1.")).to_be_visible()


def test_an_address_with_a_path_in_a_name_asks_for_nothing_else(open_tab: TabOpener, project: str) -> None:
    page = open_tab()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    for name in ("..%2F..%2F..%2Fusers%2Fadmin", "..", "a%3Amodify", "%2F"):
        page.evaluate(f"location.hash = '#/p/{project}/topics/{name}'")
        expect(page.get_by_role("heading", name="No such page")).to_be_visible()
        page.evaluate("location.hash = '#/usage'")
        expect(page.get_by_role("heading", name="Usage")).to_be_visible()

    assert [url for url in asked if "/users/admin" in url or "topics" in url] == []


def test_the_service_lets_nobody_else_act_for_its_users(service: LiveService) -> None:
    answer = httpx.get(
        f"{service.base_url}/v1/projects", headers={"Origin": "https://evil.example"}, trust_env=False,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip

    assert answer.status_code == 401
    assert "access-control-allow-credentials" not in answer.headers
    assert "set-cookie" not in answer.headers
