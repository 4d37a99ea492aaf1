"""Pages with much on them, with long texts, and with what somebody made to mislead; and a service that goes away."""

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.console.conftest import Api, Opened, button, data, row

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.long]

MANY = 59
LONG = "W" * 200


def stat(page: Page, label: str) -> str:
    return page.locator(".stat").filter(has_text=label).locator("dd").inner_text()


def test_an_overview_counts_every_subscription_and_looks_at_the_last(opened: Opened, api: Api, project: str) -> None:
    api.topic(project, *[b"x"] * 10)
    for number in range(MANY):
        push = {"pushConfig": {"pushEndpoint": "https://127.0.0.1:1/in"}} if number == 0 else {}
        api.subscription(project, f"s{number}", **push)
        api("PUT", f"/projects/{project}/topics/t{number}")
        api("POST", f"/projects/{project}/subscriptions/s{number}:modifyOffset", {"offset": 0})

    page = opened(f"p/{project}")

    expect(page.locator(".stat").filter(has_text="Waiting to be taken").locator("dd")).to_contain_text(f"{MANY * 10}")
    expect(page.get_by_label("Worth a look").get_by_role("link", name="s0", exact=True)).to_be_visible()
    expect(page.get_by_label("Busiest topics").get_by_role("link", name="t", exact=True)).to_be_visible()
    assert stat(page, "Subscriptions") == str(MANY)


def test_an_overview_shows_what_is_used_of_quotas(opened: Opened, api: Api, project: str) -> None:
    api("POST", f"/projects/{project}:modifyQuotas", {"quotas": {"topics": 5}})
    card = opened(f"p/{project}").get_by_role("region", name="Quotas")
    expect(card).to_contain_text("topics0of 5")
    expect(card).to_contain_text("no limit of its own")


def letter(project: str, number: int, body: bytes, **more: str) -> dict[str, object]:
    said = {
        "deadLetterSubscription": f"projects/{project}/subscriptions/s",
        "deadLetterSourceTopic": f"projects/{project}/topics/t",
        "deadLetterMessageId": str(number),
        "deadLetterStatus": "422",
        "deadLetterAttempts": "5",
        **more,
    }
    return {"data": data(body), "attributes": said}


@pytest.fixture
def letters(api: Api, project: str) -> str:
    """Put thirty messages aside, and let a publisher forge a letter of one more."""
    api.topic(project, *(b"body %d" % number for number in range(30)))
    api.topic(project, name="dead")
    push = {
        "type": "http_endpoint",
        "pushEndpoint": "https://127.0.0.1:1/in",
        "deadLetterTopic": f"projects/{project}/topics/dead",
    }
    api.subscription(project, pushConfig=push)
    api.publish(project, *(letter(project, number, b"body %d" % number) for number in range(30)), topic="dead")
    api.publish(project, letter(project, 3, b"made up", deadLetterReason=LONG), topic="dead")
    return f"p/{project}/subscriptions/s?tab=dead"


def test_all_dead_letters_are_reached_and_published_again(opened: Opened, api: Api, project: str, letters: str) -> None:
    page = opened(letters)
    expect(page.locator(".message")).to_have_count(25)
    button(page, "Older")
    expect(page.locator(".message")).to_have_count(6)
    expect(page.get_by_text("body 0")).to_be_visible()

    page.locator(".message").filter(has_text="body 0").get_by_role("button", name="Publish again").click()
    expect(page.get_by_text("published again as 30")).to_be_visible()
    assert api("GET", f"/projects/{project}/topics/t:offsets")["max"] == 31

    page.get_by_role("button", name="Publish 5 of these again").click()
    expect(page.get_by_text("published again as")).to_have_count(6)
    assert api("GET", f"/projects/{project}/topics/t:offsets")["max"] == 36


def test_a_forged_dead_letter_is_told_and_not_published(opened: Opened, api: Api, project: str, letters: str) -> None:
    page = opened(letters, viewport={"width": 1440, "height": 900})

    forged = page.locator(".message").filter(has_text="made up")
    expect(forged.get_by_text("Not what was published")).to_be_visible()
    expect(forged.get_by_role("button", name="Publish again")).to_have_count(0)
    page.get_by_role("button", name="Publish 24 of these again").click()
    expect(page.get_by_text("published again as")).to_have_count(24)
    read = api("GET", f"/projects/{project}/topics/t:offsets")
    assert read["max"] == 30 + 24


def test_long_texts_leave_every_button_in_sight(opened: Opened, api: Api, project: str) -> None:
    user = f"{project}-{LONG}"[:255]
    api("POST", f"/projects/{project}/members/{user}", {"email": f"{LONG}@{LONG}.example"})
    page = opened(f"p/{project}/members", viewport={"width": 1440, "height": 900})

    for name in ("Roles", "Remove…"):
        box = row(page, user).get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 1440


def test_a_service_that_goes_away_is_said_over_what_it_said_before(opened: Opened, api: Api, project: str) -> None:
    api.topic(project)
    page = opened(f"p/{project}/topics")
    expect(page.get_by_role("link", name="t", exact=True)).to_be_visible()

    page.context.set_offline(True)
    expect(page.get_by_text("The service does not answer since")).to_be_visible()
    expect(page.locator("main.stale")).to_be_visible()

    page.context.set_offline(False)
    expect(page.locator("main.stale")).to_have_count(0)


def test_a_secret_that_is_shown_once_stays_until_it_was_copied(opened: Opened, project: str) -> None:
    page = opened(f"p/{project}/members")
    button(page, "New user")
    page.get_by_label("Name", exact=True).fill(f"{project}-new")
    button(page.get_by_role("dialog"), "New user")
    once = page.get_by_role("dialog", name="The token")
    expect(once).to_be_visible()

    for _ in range(3):
        page.keyboard.press("Escape")
        expect(once).to_be_visible()

    button(once, "I have copied it")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_link_with_a_token_asks_before_it_counts(opened: Opened, api: Api, project: str, goes_on: bool) -> None:
    made = api("POST", f"/projects/{project}/members/{project}-other", {})
    page = opened("what-is-no-page")
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if goes_on else dialog.dismiss()

    page.on("dialog", answer)
    page.evaluate("token => { location.hash = `#token=${token}` }", made["token"])

    who = f"{project}-other" if goes_on else "admin"
    expect(page.get_by_role("banner").get_by_text(who, exact=True)).to_be_visible()
    assert ["in the place of" in each for each in asked] == [True]
    assert made["token"] not in page.url


# Pages that were opened before somebody else made a change: what they show is not written back over it

CHANGED = "changed meanwhile"


def member(api: Api, project: str, name: str, *roles: str) -> str:
    user = f"{project}-{name}"
    api("POST", f"/projects/{project}/members/{user}", {"projects": [{"project": project, "roles": roles}]})
    return user


def test_a_user_who_was_taken_off_an_access_list_stays_off_it(opened: Opened, api: Api, project: str) -> None:
    api.topic(project)
    first, second = (member(api, project, name, "publisher") for name in ("first", "second"))
    path = f"/projects/{project}/topics/t"
    api("POST", path + ":modifyAcl", {"authorized_users": [first]})
    page = opened(f"p/{project}/topics/t?tab=access")
    expect(page.get_by_role("button", name=f"Remove {first}")).to_be_visible()

    api("POST", path + ":modifyAcl", {"authorized_users": []})
    page.get_by_label("Add a publisher").select_option(second)
    button(page, "Add")

    expect(page.get_by_role("button", name=f"Remove {second}")).to_be_visible()
    assert api("GET", path + ":acl") == {"authorized_users": [second]}


def test_an_endpoint_that_was_stopped_stays_stopped(opened: Opened, api: Api, project: str) -> None:
    api.topic(project)
    api.subscription(project, pushConfig={"pushEndpoint": "https://127.0.0.1:1/in"})
    path = f"/projects/{project}/subscriptions/s"
    page = opened(f"p/{project}/subscriptions/s?tab=push")
    page.get_by_label("Messages in a delivery, at most").fill("7")

    api("POST", path + ":modifyPushConfig", {"pushConfig": {}})
    button(page, "Change")

    expect(page.get_by_role("alert")).to_contain_text(CHANGED)
    assert not api("GET", path)["pushConfig"].get("pushEndpoint")
    expect(page.get_by_label("Messages in a delivery, at most")).to_have_value("7")


def test_roles_that_were_taken_away_are_not_given_back(opened: Opened, api: Api, project: str) -> None:
    user = member(api, project, "user", "publisher")
    path = f"/projects/{project}/members/{user}"
    page = opened(f"p/{project}/members")
    button(row(page, user), "Roles")

    api("PUT", path, {"projects": [{"project": project, "roles": []}]})
    page.get_by_label("consumer").check()
    button(page.get_by_role("dialog"), "Roles")

    expect(page.get_by_role("alert")).to_contain_text(CHANGED)
    assert [each["roles"] for each in api("GET", path)["projects"]] == [[]]
