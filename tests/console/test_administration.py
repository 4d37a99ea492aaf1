"""The console for administrators, by a real Chromium against a real service."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.console.conftest import Api, TabOpener, button, confirm, data, fill_in, row
from tests.support.service import LiveService
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.long]


def shown_token(page: Page) -> str:
    once = page.get_by_role("dialog", name="The token")
    token = once.locator("code").inner_text()
    once.get_by_role("button", name="I have copied it").click()
    assert token not in page.content()
    return token


def status(service: LiveService, token: str, path: str = "/users/profile") -> int:
    with service.http() as client:
        return client.get(path, headers={"x-api-key": token}).status_code


def test_a_schema_gets_a_second_revision_and_shows_the_difference(open_tab: TabOpener, api: Api, project: str) -> None:
    page = open_tab(f"p/{project}/schemas")
    fields = {"Name": "reading", "What payloads must be": '{"type": "object", "required": ["site"]}'}
    fill_in(page, "New schema", fields)
    expect(page.get_by_role("heading", name="reading")).to_be_visible()

    fill_in(page, "New revision", {"What payloads must be": '{"type": "object", "required": ["place"]}'})
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("tab", name="Revisions").click()

    expect(page.locator("del").filter(has_text="site")).to_be_visible()
    expect(page.locator("ins").filter(has_text="place")).to_be_visible()
    revisions = api("GET", f"/projects/{project}/schemas/reading:revisions")["revisions"]
    for each in revisions:
        expect(page.get_by_role("heading", name=each["revision"])).to_be_visible()

    page.get_by_role("tab", name="Try it").click()
    page.get_by_label("Payload").fill('{"site": "A"}')
    button(page, "Validate")
    expect(page.get_by_role("alert")).to_contain_text("place is required")
    page.get_by_label("Payload").fill('{"place": "A"}')
    button(page, "Validate")
    expect(page.get_by_text("Message validated successfully")).to_be_visible()

    page.get_by_role("tab", name="Now").click()
    button(page, "Delete…")
    confirm(page, "Delete", "reading")
    expect(page.get_by_text("The project has no schemas.")).to_be_visible()


def test_a_project_admin_gives_out_new_tokens(open_tab: TabOpener, api: Api, service: LiveService, project: str):
    path = f"/projects/{project}/members"
    roles = {"projects": [{"project": project, "roles": ["project_admin"]}]}
    admin = api("POST", f"{path}/{project}-admin", roles)["token"]
    old = api("POST", f"{path}/{project}-sensor", {})["token"]
    page = open_tab(f"p/{project}/members", token=admin)

    button(row(page, f"{project}-sensor"), "New token…")
    confirm(page, "New token", f"{project}-sensor")

    assert status(service, shown_token(page)) == 200
    assert status(service, old) == 401


def test_a_member_is_made_edited_and_removed(open_tab: TabOpener, api: Api, service: LiveService, project: str) -> None:
    page = open_tab(f"p/{project}/members")
    fill_in(page, "New user", {"Name": f"{project}-sensor"})
    token = shown_token(page)
    assert status(service, token) == 200

    button(row(page, f"{project}-sensor"), "Roles")
    page.get_by_label("publisher").uncheck()
    page.get_by_label("consumer").check()
    button(page.get_by_role("dialog"), "Roles")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(row(page, f"{project}-sensor")).to_contain_text("consumer")
    member = api("GET", f"/projects/{project}/members/{project}-sensor")
    assert [each["roles"] for each in member["projects"]] == [["consumer"]]

    button(row(page, f"{project}-sensor"), "Remove…")
    confirm(page, "Remove", f"{project}-sensor")
    expect(page.get_by_text("The project has no members yet.")).to_be_visible()


def test_a_named_token_is_shown_once_and_revoked(open_tab: TabOpener, service: LiveService, project: str) -> None:
    page = open_tab("tokens")
    fill_in(page, "New token", {"Name": project, "Rights": "topics:publish everywhere"})
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()  # and nothing typed is lost
    page.get_by_label("Rights").fill(f"projects:show projects/{project}")
    button(page.get_by_role("dialog"), "New token")
    token = shown_token(page)
    expect(row(page, project)).to_contain_text(f"projects:show on projects/{project}")
    assert status(service, token, f"/projects/{project}") == 200

    button(row(page, project), "Revoke…")
    confirm(page, "Revoke", project)
    expect(row(page, project)).to_have_count(0)
    assert status(service, token) == 401


def test_registrations_are_accepted_and_declined(open_tab: TabOpener, api: Api, service: LiveService, project: str):
    for name in ("yes", "no"):
        api("POST", "/registrations", {"name": f"{project}-{name}", "organization": "Garden"})
    page = open_tab("registrations")

    button(row(page, f"{project}-yes"), "Accept")
    assert status(service, shown_token(page)) == 200
    fill_in(page, "Decline", {"Why": "twice"}, row(page, f"{project}-no"))

    expect(row(page, f"{project}-yes")).to_contain_text("accepted")
    expect(row(page, f"{project}-no")).to_contain_text("declined twice")


def test_a_user_is_made_changed_bound_and_deleted(open_tab: TabOpener, api: Api, project: str) -> None:
    page = open_tab("users")
    name = f"{project}-viewer"
    button(page, "New user")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("admin_viewer").check()
    button(page.get_by_role("dialog"), "New user")
    shown_token(page)
    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name).first).to_be_visible()

    page.get_by_role("tab", name="Identities").click()
    fields = {"Name": "checkin", "Issuer": "https://aai.example/auth", "Subject": "abc@egi.example"}
    fill_in(page, "New identity", fields)
    expect(row(page, "abc@egi.example")).to_be_visible()

    page.get_by_role("tab", name="About").click()
    button(page, "Delete…")
    refused = page.get_by_role("dialog").get_by_role("button", name="Delete")
    page.get_by_label(f"Type {name} to go on").fill(name[:-1])
    expect(refused).to_be_disabled()
    page.get_by_label(f"Type {name} to go on").fill(name)
    refused.click()
    expect(page.get_by_role("heading", name="Users")).to_be_visible()
    assert name not in [each["name"] for each in api("GET", "/users")["users"]]


def test_an_issuer_is_added_changed_and_removed(open_tab: TabOpener, api: Api, project: str) -> None:
    page = open_tab("issuers")
    fill_in(page, "New issuer", {"Name": project, "Fields": "{"})
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.get_by_label("Fields").fill('{"url": "https://aai.example/auth", "audiences": ["ams"]}')
    button(page.get_by_role("dialog"), "New issuer")
    button(row(page, project), "Change")
    assert "https://aai.example/auth" in page.get_by_label("Fields").input_value()
    page.get_by_label("Fields").fill('{"url": "https://aai.example/auth", "audiences": ["other"]}')
    button(page.get_by_role("dialog"), "Change")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert api("GET", f"/issuers/{project}")["audiences"] == ["other"]

    button(row(page, project), "Delete…")
    confirm(page, "Delete", project)
    expect(row(page, project)).to_have_count(0)


def test_the_audit_log_is_filtered_and_pages_back(open_tab: TabOpener, api: Api, project: str) -> None:
    for number in range(120):
        api("PUT", f"/projects/{project}/topics/t{number}")
    newest = f"/projects/{project}/topics/t119"
    newest_event = "/audit?pageSize=1&action=topics:create"  # the table follows the file of events
    wait_until(lambda: newest in [each["resource"] for each in api("GET", newest_event)["events"]])
    page = open_tab("audit")
    page.get_by_label("Action begins with").fill("topics:create")
    button(page, "Show")
    expect(row(page, f"/projects/{project}/topics/t119")).to_be_visible()
    button(page, "Older")
    expect(row(page, f"/projects/{project}/topics/t19")).to_be_visible()
    page.get_by_label("Result").select_option("failed")
    button(page, "Show")
    expect(page.get_by_text("No such event.")).to_be_visible()


def test_usage_is_shown_by_month_and_downloaded(open_tab: TabOpener, api: Api, project: str, tmp_path: Path) -> None:
    api.topic(project)
    api.publish(project, *[{"data": "YQ=="}] * 3)
    page = open_tab("usage")
    expect(row(page, project)).to_contain_text("3")

    with page.expect_download() as download:
        button(page, "Download CSV")

    download.value.save_as(tmp_path / "usage.csv")
    [found] = [e for e in csv.DictReader(io.StringIO((tmp_path / "usage.csv").read_text())) if e["project"] == project]
    months = [name for name in found if re.fullmatch(r"\d{4}-\d\d", name)]
    assert len(months) == 6
    assert (found[months[-1]], found["messages"], found["topics"]) == ("3", "3", "1")
    page = open_tab("usage?months=99999999999")
    expect(page.get_by_label("Months")).to_have_value("36")


def test_a_project_is_changed_and_deleted_with_its_name_typed(open_tab: TabOpener, api: Api, project: str) -> None:
    page = open_tab()
    fields = {"What it is for": "trying", "Seconds that messages are kept": "3600"}
    fill_in(page, "Change", fields, row(page, project))
    expect(row(page, project)).to_contain_text("trying")
    assert api("GET", f"/projects/{project}")["retentionSeconds"] == 3600

    button(row(page, project), "Delete…")
    confirm(page, "Delete", project)
    expect(row(page, project)).to_have_count(0)


SUBSCRIPTION_COUNT = 59


def test_an_overview_counts_all_subscriptions_and_looks_at_the_last(open_tab: TabOpener, api: Api, project: str):
    api("POST", f"/projects/{project}:modifyQuotas", {"quotas": {"topics": 100}})
    api.topic(project, *[b"x"] * 10)
    for number in range(SUBSCRIPTION_COUNT):
        push = {"pushConfig": {"pushEndpoint": "https://127.0.0.1:1/in"}} if number == 0 else {}
        api.subscription(project, f"s{number}", **push)
        api("PUT", f"/projects/{project}/topics/t{number}")
        api("POST", f"/projects/{project}/subscriptions/s{number}:modifyOffset", {"offset": 0})

    page = open_tab(f"p/{project}")

    expect(page.locator(".stat").filter(has_text="Waiting to be taken").locator("dd")).to_contain_text(
        f"{SUBSCRIPTION_COUNT * 10}"
    )
    expect(page.get_by_label("Worth a look").get_by_role("link", name="s0", exact=True)).to_be_visible()
    expect(page.get_by_label("Busiest topics").get_by_role("link", name="t", exact=True)).to_be_visible()
    expect(page.locator(".stat").filter(has_text="Subscriptions").locator("dd")).to_have_text(str(SUBSCRIPTION_COUNT))
    quotas = page.get_by_role("region", name="Quotas")
    expect(quotas).to_contain_text(f"topics{SUBSCRIPTION_COUNT + 1}of 100")
    expect(quotas).to_contain_text(re.compile(r"streams0of .+ \(fair share\)"))


def letter(project: str, number: int, body: bytes, **more: str) -> dict[str, object]:
    of = {"Subscription": f"projects/{project}/subscriptions/s", "SourceTopic": f"projects/{project}/topics/t",
          "MessageId": str(number), "Status": "422", "Attempts": "5", **more}  # fmt: skip
    return {"data": data(body), "attributes": {f"deadLetter{name}": value for name, value in of.items()}}


@pytest.fixture
def letters(api: Api, project: str) -> str:
    """Make thirty dead letters, and let a publisher forge one more."""
    api.topic(project, *(b"body %d" % number for number in range(30)))
    api.topic(project, name="dead")
    push = {"type": "http_endpoint", "pushEndpoint": "https://127.0.0.1:1/in"}
    api.subscription(project, pushConfig=push | {"deadLetterTopic": f"projects/{project}/topics/dead"})
    api.publish(project, *(letter(project, number, b"body %d" % number) for number in range(30)), topic="dead")
    api.publish(project, letter(project, 3, b"made up", Reason="W" * 200), topic="dead")
    return f"p/{project}/subscriptions/s?tab=dead"


def test_all_dead_letters_can_be_published_again(open_tab: TabOpener, api: Api, project: str, letters: str) -> None:
    page = open_tab(letters)
    expect(page.locator(".message")).to_have_count(25)
    button(page, "Older")
    expect(page.locator(".message")).to_have_count(6)
    expect(page.get_by_text("body 0")).to_be_visible()

    page.locator(".message").filter(has_text="body 0").get_by_role("button", name="Publish again").click()
    expect(page.get_by_text("published again", exact=True)).to_be_visible()
    assert api("GET", f"/projects/{project}/topics/t:offsets")["max"] == 31

    other = open_tab(f"{letters}&before=6")  # another browser, of which somebody publishes after us
    button_of_five = other.get_by_role("button", name="Publish 5 of these again")
    expect(button_of_five).to_be_visible()
    page.get_by_role("button", name="Publish 5 of these again").click()
    expect(page.get_by_text("published again", exact=True)).to_have_count(6)
    button_of_five.click()
    expect(other.get_by_text("5 of 5 were published to t before.")).to_be_visible()
    assert api("GET", f"/projects/{project}/topics/t:offsets")["max"] == 36


def test_a_forged_dead_letter_is_told_not_published(open_tab: TabOpener, api: Api, project: str, letters: str) -> None:
    page = open_tab(letters, viewport={"width": 1440, "height": 900})

    forged = page.locator(".message").filter(has_text="made up")
    expect(forged.get_by_text("Not what was published")).to_be_visible()
    expect(forged.get_by_role("button", name="Publish again")).to_have_count(0)
    page.get_by_role("button", name="Publish 24 of these again").click()
    expect(page.get_by_text("published again", exact=True)).to_have_count(24)
    read = api("GET", f"/projects/{project}/topics/t:offsets")
    assert read["max"] == 30 + 24


USER = {"email": f"{'x' * 60}@{'y' * 60}.example"}
TOPIC_NAME = "projects/$P/topics/$X"
RIGHTS = {"rights": [{"action": "topics:publish", "resource": TOPIC_NAME}] * 9}
PAGES = {
    "members": ("p/$P/members", "POST", "/projects/$P/members/$X", USER),
    "topics": ("p/$P/topics", "POST", f"/{TOPIC_NAME}:modifyRetention", {"retentionSeconds": 60}),
    "subscriptions": ("p/$P/subscriptions", "PUT", "/projects/$P/subscriptions/$X", {"topic": TOPIC_NAME}),
    "schemas": ("p/$P/schemas", "POST", "/projects/$P/schemas/$X", {"type": "json", "schema": {"type": "object"}}),
    "tokens": ("tokens", "POST", "/users/admin/tokens/$X", RIGHTS),
    "users": ("users", "POST", "/users/$X", USER),
    "issuers": ("issuers", "POST", "/issuers/$X", {"url": "https://aai.example/$X", "audiences": ["ams"]}),
}


@pytest.mark.parametrize("kind", PAGES)
def test_long_texts_leave_every_button_in_sight(open_tab: TabOpener, api: Api, project: str, kind: str) -> None:
    name = f"{project}-{'x' * 150}"[:100]  # an issuer's has no more
    api.topic(project, name=name)
    at, *ask = json.loads(json.dumps(PAGES[kind]).replace("$P", project).replace("$X", name))
    api(*ask)
    page = open_tab(at, viewport={"width": 1440, "height": 900})
    expect(row(page, name)).to_be_visible()
    boxes = [each.bounding_box() for each in page.locator("main button").all() if each.is_visible()]

    assert [box for box in boxes if box is None or box["x"] < 0 or box["x"] + box["width"] > 1440] == []
    assert boxes


def test_a_service_that_goes_away_is_said_over_what_it_said_before(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    page = open_tab(f"p/{project}/topics")
    expect(page.get_by_role("link", name="t", exact=True)).to_be_visible()

    page.context.set_offline(True)
    expect(page.get_by_text("The service does not answer since")).to_be_visible()
    expect(page.locator("main.stale")).to_be_visible()

    page.context.set_offline(False)
    expect(page.locator("main.stale")).to_have_count(0)


def test_a_secret_that_is_shown_once_stays_until_it_was_copied(open_tab: TabOpener, project: str) -> None:
    page = open_tab(f"p/{project}/members")
    fill_in(page, "New user", {"Name": f"{project}-new"})
    once = page.get_by_role("dialog", name="The token")
    expect(once).to_be_visible()

    for _ in range(3):
        page.keyboard.press("Escape")
        expect(once).to_be_visible()

    button(once, "I have copied it")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_link_with_a_token_asks_before_it_counts(open_tab: TabOpener, api: Api, project: str, goes_on: bool) -> None:
    made = api("POST", f"/projects/{project}/members/{project}-other", {})
    page = open_tab("what-is-no-page")
    expect(page).to_have_title("No such page – AMS console")
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if goes_on else dialog.dismiss()

    page.on("dialog", answer)
    page.evaluate("token => { location.hash = `#token=${token}` }", made["token"])

    who = f"{project}-other" if goes_on else "admin"
    expect(page.get_by_role("banner").get_by_text(who, exact=True)).to_be_visible()
    assert ["in the place of" in each for each in asked] == [True]
    assert made["token"] not in page.url + page.title()
    page.go_back()
    assert "token" not in page.url


# Pages opened before somebody else's change do not overwrite it

CHANGED_MEANWHILE = "changed meanwhile"


def member(api: Api, project: str, name: str, *roles: str) -> str:
    user = f"{project}-{name}"
    api("POST", f"/projects/{project}/members/{user}", {"projects": [{"project": project, "roles": roles}]})
    return user


def test_a_user_who_was_taken_off_an_access_list_stays_off_it(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    first, second = (member(api, project, name, "publisher") for name in ("first", "second"))
    path = f"/projects/{project}/topics/t"
    api("POST", path + ":modifyAcl", {"authorized_users": [first]})
    page = open_tab(f"p/{project}/topics/t?tab=access")
    expect(page.get_by_role("button", name=f"Remove {first}")).to_be_visible()

    api("POST", path + ":modifyAcl", {"authorized_users": []})
    page.get_by_label("Add a publisher").select_option(second)
    button(page, "Add")

    expect(page.get_by_role("button", name=f"Remove {second}")).to_be_visible()
    assert api("GET", path + ":acl") == {"authorized_users": [second]}


def test_an_endpoint_that_was_stopped_stays_stopped(open_tab: TabOpener, api: Api, project: str) -> None:
    api.topic(project)
    api.subscription(project, pushConfig={"pushEndpoint": "https://127.0.0.1:1/in"})
    path = f"/projects/{project}/subscriptions/s"
    page = open_tab(f"p/{project}/subscriptions/s?tab=push")
    page.get_by_label("Messages in a delivery, at most").fill("7")

    api("POST", path + ":modifyPushConfig", {"pushConfig": {}})
    button(page, "Change")

    expect(page.get_by_role("alert")).to_contain_text(CHANGED_MEANWHILE)
    assert not api("GET", path)["pushConfig"].get("pushEndpoint")
    expect(page.get_by_label("Messages in a delivery, at most")).to_have_value("7")


def test_roles_that_were_taken_away_are_not_given_back(open_tab: TabOpener, api: Api, project: str) -> None:
    user = member(api, project, "user", "publisher")
    path = f"/projects/{project}/members/{user}"
    page = open_tab(f"p/{project}/members")
    button(row(page, user), "Roles")

    api("PUT", path, {"projects": [{"project": project, "roles": []}]})
    page.get_by_label("consumer").check()
    button(page.get_by_role("dialog"), "Roles")

    expect(page.get_by_role("alert")).to_contain_text(CHANGED_MEANWHILE)
    assert [each["roles"] for each in api("GET", path)["projects"]] == [[]]


def test_an_issuer_that_was_changed_is_not_changed_back(open_tab: TabOpener, api: Api, project: str) -> None:
    path, fields = f"/issuers/{project}", {"url": f"https://aai.example/{project}", "audiences": ["ams"]}
    api("POST", path, fields)
    page = open_tab("issuers")
    button(row(page, project), "Change")

    api("PUT", path, {**fields, "audiences": ["other"]})
    button(page.get_by_role("dialog"), "Change")

    expect(page.get_by_role("alert")).to_contain_text(CHANGED_MEANWHILE)
    assert api("GET", path)["audiences"] == ["other"]
