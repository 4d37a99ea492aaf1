import re

import httpx
import pytest
from playwright.sync_api import expect

from tests.console.conftest import Api, TabOpener, button, data, violations
from tests.console.pictures import pages
from tests.support.service import LiveService
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.chromium, pytest.mark.node]

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


def test_a_new_user_logs_in_and_publishes(open_tab: TabOpener, api: Api, service: LiveService, project: str) -> None:
    page = open_tab(token="")
    page.get_by_label("Token").fill(service.token)
    button(page, "Log in")
    page.get_by_role("link", name=project, exact=True).first.click()
    page.get_by_role("link", name="Topics", exact=True).click()
    button(page, "New topic")
    page.get_by_label("Name").fill("readings")
    button(page.get_by_role("dialog"), "New topic")
    expect(page.get_by_role("heading", name="readings")).to_be_visible()

    page.get_by_role("tab", name="Messages").click()
    button(page, "Follow live")
    expect(page.get_by_text("Following:")).to_be_visible()
    api("POST", f"/projects/{project}/topics/readings:publish", {"messages": [{"data": data(b"from elsewhere")}]})
    expect(page.get_by_text("from elsewhere")).to_be_visible()

    page.get_by_role("tab", name="Publish").click()
    page.get_by_label("Body", exact=True).fill("from here")
    button(page, "Publish")
    expect(page.get_by_text("It has the id 1.")).to_be_visible()
    assert service.token not in page.url


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_the_rules_of_accessibility(open_tab: TabOpener, api: Api, project: str, scheme: str) -> None:
    api.topic(project)
    api.subscription(project)
    api("POST", f"/projects/{project}/topics/t:publish", {"messages": [{"data": data(b"x"), "attributes": {"a": "b"}}]})
    for method, kind in (("POST", "object"), ("PUT", "array")):
        api(method, f"/projects/{project}/schemas/x", {"type": "json", "schema": {"type": kind}})
    api("POST", "/registrations", {"name": f"{project}-new"})
    page = open_tab(color_scheme=scheme)
    for place in pages(project, "t", "s", "x").values():
        page.evaluate(f"location.hash = '#/{place}'")
        expect(page.get_by_role("heading").first).to_be_visible()
        page.wait_for_load_state("networkidle") if "messages" in place else page.wait_for_timeout(300)
        assert violations(page) == [], place


@pytest.mark.long
def test_whatever_is_in_a_message_is_shown_as_text_and_never_runs(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    bodies = [MARKUP.encode(), "\u202etxet".encode(), bytes(range(256)), b"x" * 1_000_000]
    messages = [{"data": data(each), "attributes": {"note": MARKUP}} for each in bodies]
    many = {"data": "", "attributes": {f"name-{number}": MARKUP for number in range(2_000)}}
    api("POST", f"/projects/{project}/topics/t:publish", {"messages": [*messages, many]})

    page = open_tab(f"p/{project}/topics/t?tab=messages")

    expect(page.get_by_role("article")).to_have_count(5)
    expect(page.get_by_text(MARKUP).first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Show all 2,?000 attributes"))).to_be_visible()
    assert page.locator("article img, article script").count() == 0
    assert page.title() != "1"
    assert "\u202e" not in page.locator("main").inner_text()


@pytest.mark.long
def test_an_ended_token_loses_nothing_typed(open_tab: TabOpener, api: Api, service: LiveService, project: str) -> None:
    api.topic(project)
    made = api("POST", "/users/admin/tokens/short", {"expires_in": 3600})
    page = open_tab(f"p/{project}/topics/t?tab=publish", made["token"])
    page.get_by_label("Body", exact=True).fill("typed before")
    api("DELETE", "/users/admin/tokens/short")

    button(page, "Publish")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill(service.token)
    dialog.get_by_role("button", name="Go on").click()

    expect(page.get_by_text("It has the id 0.")).to_be_visible()
    url, headers = f"{service.base_url}/v1/projects/{project}/topics/t:read", {"x-api-key": service.token}
    [stored] = httpx.get(url, headers=headers, trust_env=False, timeout=PATIENCE_SECONDS).text.splitlines()
    assert data(b"typed before") in stored


@pytest.mark.long
def test_a_subscription_moves_back_at_once_and_forward_by_its_name(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    api.subscription(project)
    api.publish(project, *[{"data": data(b"x")}] * 3)
    page = open_tab(f"p/{project}/subscriptions/s?tab=seek")

    button(page, "To the end")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 messages will be passed over")
    expect(dialog.get_by_role("button", name="Move", exact=True)).to_be_disabled()
    dialog.get_by_label("Type s to go on").fill("s")
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api("GET", f"/projects/{project}/subscriptions/s:offsets")["current"] == 3

    button(page, "To the oldest kept")
    page.get_by_role("dialog").get_by_role("button", name="Move", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api("GET", f"/projects/{project}/subscriptions/s:offsets")["current"] == 0


def test_all_of_it_is_small(service: LiveService) -> None:
    page = httpx.get(f"{service.base_url}/console/", trust_env=False, timeout=PATIENCE_SECONDS)
    names = re.findall(r'(?:src|href)="([^"]+\.(?:js|css))"', page.text)
    files = [httpx.get(f"{service.base_url}/console/{n}", trust_env=False, timeout=PATIENCE_SECONDS) for n in names]

    assert len(names) == 2
    assert sum(int(each.headers["content-length"]) for each in [page, *files]) < 150_000
