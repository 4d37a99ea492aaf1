"""What people do in the console, by a real Chromium against a real service."""

import base64
import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import ROOT, Api, Opened, violations
from tests.support.service import LiveService

pytestmark = [pytest.mark.chromium, pytest.mark.node]

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


def data(text: bytes) -> str:
    return base64.b64encode(text).decode()


def button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def test_a_new_user_logs_in_makes_a_topic_publishes_and_sees_it_come(
    opened: Opened, api: Api, service: LiveService, project: str
) -> None:
    page = opened(token="")
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_the_rules_of_accessibility(opened: Opened, api: Api, project: str, scheme: str) -> None:
    api("PUT", f"/projects/{project}/topics/t")
    api("PUT", f"/projects/{project}/subscriptions/s", {"topic": f"projects/{project}/topics/t"})
    api("POST", f"/projects/{project}/topics/t:publish", {"messages": [{"data": data(b"x"), "attributes": {"a": "b"}}]})
    for kind in ("object", "array"):
        api(
            "POST" if kind == "object" else "PUT",
            f"/projects/{project}/schemas/x",
            {"type": "json", "schema": {"type": kind}},
        )
    api("POST", "/registrations", {"name": f"{project}-new"})
    page = opened(color_scheme=scheme)
    tabs = ["", "?tab=messages", "?tab=publish", "?tab=schema", "?tab=access"]
    places = [
        "", f"p/{project}", f"p/{project}/topics", f"p/{project}/subscriptions", f"p/{project}/schemas",
        *(f"p/{project}/schemas/x{tab}" for tab in ("", "?tab=revisions", "?tab=try")), f"p/{project}/members",
        "tokens", "users", *(f"users/admin{tab}" for tab in ("", "?tab=tokens", "?tab=bindings")), "registrations",
        "issuers", "audit", "service", "usage",
        *(f"p/{project}/topics/t{tab}" for tab in tabs), *(f"p/{project}/subscriptions/s{tab}" for tab in tabs),
    ]  # fmt: skip
    for place in places:
        page.evaluate(f"location.hash = '#/{place}'")
        expect(page.get_by_role("heading").first).to_be_visible()
        page.wait_for_load_state("networkidle") if "messages" in place else page.wait_for_timeout(300)
        assert violations(page) == [], place


def test_whatever_is_in_a_message_is_shown_as_text_and_never_runs(opened: Opened, api: Api, project: str) -> None:
    api("PUT", f"/projects/{project}/topics/t")
    bodies = [MARKUP.encode(), "\u202etxet".encode(), bytes(range(256)), b"x" * 1_000_000]
    messages = [{"data": data(each), "attributes": {"note": MARKUP}} for each in bodies]
    many = {"data": "", "attributes": {f"name-{number}": MARKUP for number in range(2_000)}}
    api("POST", f"/projects/{project}/topics/t:publish", {"messages": [*messages, many]})

    page = opened(f"p/{project}/topics/t?tab=messages")

    expect(page.get_by_role("article")).to_have_count(5)
    expect(page.get_by_text(MARKUP).first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Show all 2,?000 attributes"))).to_be_visible()
    assert page.locator("article img, article script").count() == 0
    assert page.title() != "1"
    assert "\u202e" not in page.locator("main").inner_text()


def test_a_member_with_fewer_rights_sees_fewer_pages(opened: Opened, api: Api, project: str) -> None:
    api("PUT", f"/projects/{project}/topics/t")
    body = {"projects": [{"project": project, "roles": ["publisher"]}]}
    token = api("POST", f"/users/{project}-pub", body)["token"]
    api("POST", f"/projects/{project}/topics/t:modifyAcl", {"authorized_users": [f"{project}-pub"]})

    page = opened(f"p/{project}/topics", token)

    expect(page.get_by_role("link", name="t", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Subscriptions", exact=True)).to_have_count(0)
    expect(page.get_by_role("button", name="New topic")).to_have_count(0)

    page.evaluate("location.hash = '#/p/of-others'")
    expect(page.get_by_role("heading", name="Not for you")).to_be_visible()


def test_a_token_that_ends_in_the_middle_of_work_loses_nothing_that_was_typed(
    opened: Opened, api: Api, service: LiveService, project: str
) -> None:
    api("PUT", f"/projects/{project}/topics/t")
    made = api("POST", "/users/admin/tokens/short", {"expires_in": 3600})
    page = opened(f"p/{project}/topics/t?tab=publish", made["token"])
    page.get_by_label("Body", exact=True).fill("typed before")
    api("DELETE", "/users/admin/tokens/short")

    button(page, "Publish")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Token").fill(service.token)
    dialog.get_by_role("button", name="Go on").click()

    expect(page.get_by_text("It has the id 0.")).to_be_visible()
    [stored] = httpx.get(
        f"{service.base_url}/v1/projects/{project}/topics/t:read", headers={"x-api-key": service.token}, trust_env=False
    ).text.splitlines()
    assert data(b"typed before") in stored


def test_a_message_that_the_schema_refuses_is_told_in_the_words_of_the_api(
    opened: Opened, api: Api, project: str
) -> None:
    schema = {"type": "object", "required": ["bed"], "properties": {"bed": {"type": "string"}}}
    api("POST", f"/projects/{project}/schemas/reading", {"type": "json", "schema": schema})
    api("PUT", f"/projects/{project}/topics/t", {"schema": f"projects/{project}/schemas/reading"})
    page = opened(f"p/{project}/topics/t?tab=publish")
    page.get_by_label("Body", exact=True).fill("{}")

    button(page, "Publish")

    said = page.get_by_role("alert")
    expect(said).to_contain_text("bed")
    expect(said).to_contain_text("Request")
    expect(page.get_by_label("Body", exact=True)).to_have_value("{}")


def test_a_subscription_is_moved_back_at_once_and_forward_only_by_its_name(
    opened: Opened, api: Api, project: str
) -> None:
    api("PUT", f"/projects/{project}/topics/t")
    api("PUT", f"/projects/{project}/subscriptions/s", {"topic": f"projects/{project}/topics/t"})
    api("POST", f"/projects/{project}/topics/t:publish", {"messages": [{"data": data(b"x")}] * 3})
    page = opened(f"p/{project}/subscriptions/s?tab=seek")

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


def test_no_token_is_left_anywhere_unless_its_user_wants_that(opened: Opened, service: LiveService) -> None:
    page = opened()

    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, history.length])")

    assert service.token not in kept
    assert service.token not in page.url


def test_an_address_that_logs_in_is_taken_in_where_the_console_is_open(opened: Opened, api: Api, project: str) -> None:
    made = api("POST", f"/projects/{project}/members/{project}", {})
    page = opened("what-is-no-page")
    expect(page).to_have_title("No such page – AMS console")

    for token, said in ((made["token"], "Your roles"), ("wrong-token", "The token is not known here")):
        page.evaluate("token => { location.hash = `#token=${token}` }", token)
        expect(page.get_by_text(said).first).to_be_visible()
        assert token not in page.url + page.title()
    page.go_back()
    assert "token" not in page.url


def test_a_token_that_was_made_for_the_tab_ends_with_log_out(opened: Opened, api: Api, project: str) -> None:
    user = api("POST", f"/projects/{project}/members/{project}", {})["name"]
    made = api("POST", f"/users/{user}/tokens/console-1", {})
    page = opened("what-is-no-page")
    page.evaluate("hash => { location.hash = hash }", f"#token={made['token']}&name=console-1")
    expect(page.get_by_text(user).first).to_be_visible()

    with page.expect_response("**/tokens/console-1") as answer:
        page.get_by_role("button", name="Log out").click()

    assert answer.value.status == 200
    assert api("GET", f"/users/{user}/tokens")["tokens"] == []


def test_other_sites_cannot_frame_it(service: LiveService) -> None:
    headers = httpx.get(f"{service.base_url}/console/", trust_env=False).headers

    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


def test_all_of_it_is_small(service: LiveService) -> None:
    page = httpx.get(f"{service.base_url}/console/", trust_env=False)
    names = re.findall(r'(?:src|href)="([^"]+\.(?:js|css))"', page.text)
    files = [httpx.get(f"{service.base_url}/console/{name}", trust_env=False) for name in names]

    assert len(names) == 2
    assert sum(int(each.headers["content-length"]) for each in [page, *files]) < 150_000


def test_our_own_part_can_be_read() -> None:
    written = (path for path in (ROOT / "console" / "src").rglob("*.ts*") if path.name != "wire.d.ts")
    sources = [path for path in written if "test" not in path.name]

    assert sum(path.read_text().count("\n") for path in sources) <= 4_000
