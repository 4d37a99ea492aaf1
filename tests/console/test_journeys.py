"""Longer journeys through the console: repaired deliveries, other logins, roles, a service that fails."""

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from local_cluster.link import Link
from local_cluster.ports import free_port
from tests.console.conftest import ROOT, Api, TabOpener, button, data
from tests.support import shape
from tests.support.receiving import Receiving, run_receiver
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.chromium, pytest.mark.node, pytest.mark.long]

ROLES = {
    "service_admin": ["Overview", "Topics", "Subscriptions", "Schemas", "Members", "Projects", "Your tokens", "Users",
                      "Registrations", "Issuers", "Audit log", "Service", "Usage"],
    "project_admin": ["Overview", "Topics", "Subscriptions", "Schemas", "Members", "Projects", "Your tokens", "Usage"],
    "publisher": ["Overview", "Topics", "Projects", "Your tokens"],
    "consumer": ["Overview", "Subscriptions", "Projects", "Your tokens"],
}  # fmt: skip


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with run_receiver(tmp_path_factory.mktemp("endpoints")) as running:
        yield running


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    port = free_port()
    subprocess.run(["scripts/console", "packages"], cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL)
    with subprocess.Popen(
        ["node", "issuer.mjs", f"http://127.0.0.1:{port}/console/"],
        cwd=ROOT / "console", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        yield process.stdout.readline().strip(), port
        process.terminate()


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, endpoints: Receiving, issuer: tuple[str, int]
) -> Iterator[LiveService]:
    subprocess.run(["scripts/console"], cwd=ROOT, check=True, timeout=600, stdout=subprocess.DEVNULL)
    folder = tmp_path_factory.mktemp("journeys")
    url, port = issuer
    (folder / "issuers.toml").write_text(f'[[issuer]]\nname = "example"\nurl = "{url}"\naudiences = ["ams"]\n')
    environment = {
        "AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PUSH_CA_FILE": endpoints.ca,
        "AMS_ISSUERS_FILE": str(folder / "issuers.toml"), "AMS_ISSUERS_ALLOW": "127.0.0.0/8",
        "AMS_CONSOLE_LOGINS": '{"example": "console"}',
    }  # fmt: skip
    flags = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--port", str(port))
    with live_service(folder / "ams-data", *flags, environment=environment) as running:
        yield running


def verified_push(
    page: Page, api: Api, endpoints: Receiving, subscription: str, url: str, act: str = "Deliver there"
) -> None:
    page.get_by_label("Address").fill(url)
    button(page, act)
    expect(page.get_by_role("heading", name="Verify the endpoint")).to_be_visible()
    endpoints.show(api("GET", subscription)["pushConfig"]["verificationHash"])
    button(page, "Verify it now")
    expect(page.get_by_role("heading", name="Verify the endpoint")).to_have_count(0)


def test_a_delivery_that_breaks_is_repaired(open_tab: TabOpener, api: Api, endpoints: Receiving, project: str) -> None:
    subscription = f"/projects/{project}/subscriptions/s"
    api.topic(project)
    api("PUT", subscription, {"topic": f"projects/{project}/topics/t"})
    page = open_tab(f"p/{project}/subscriptions/s?tab=push")
    verified_push(page, api, endpoints, subscription, endpoints.url("/status/500/broken"))

    api.publish(project, {"data": data(b"hello")})
    expect(page.get_by_role("row").filter(has_text="500").first).to_be_visible()
    page.get_by_role("link", name="Subscriptions", exact=True).click()
    page.get_by_role("link", name="s", exact=True).click()
    expect(page.get_by_text("Something has to be done")).to_be_visible()
    page.get_by_role("tab", name="Push").click()

    verified_push(page, api, endpoints, subscription, endpoints.url("/ok/repaired"), "Change")

    expect(page.get_by_role("row").filter(has_text="200").first).to_be_visible()
    [came] = endpoints.wait(1, "/ok/repaired")
    assert data(b"hello") in came.body

    button(page, "New signing secret")
    once = page.get_by_role("dialog", name="The secret")
    secret = once.locator("code").inner_text()
    once.get_by_role("button", name="I have copied it").click()
    assert len(secret) > 20
    assert secret not in page.content()


def test_a_dead_letter_is_published_again(open_tab: TabOpener, api: Api, endpoints: Receiving, project: str) -> None:
    base = f"/projects/{project}"
    api("PUT", f"{base}/topics/t")
    api("PUT", f"{base}/topics/dead")
    api("PUT", f"{base}/subscriptions/s", {"topic": f"projects/{project}/topics/t"})
    page = open_tab(f"p/{project}/subscriptions/s?tab=push")
    page.get_by_label("Dead letter topic").fill("dead")
    page.get_by_label("Refused so often").fill("1")
    verified_push(page, api, endpoints, f"{base}/subscriptions/s", endpoints.url("/refuse/poison"))

    api("POST", f"{base}/topics/t:publish", {"messages": [{"data": data(b"poison")}]})
    wait_until(lambda: api("GET", f"{base}/topics/dead:offsets")["max"] == 1)
    page.reload()
    page.get_by_label("Token").fill(api.token)  # a reload forgets it
    button(page, "Log in")
    page.get_by_role("tab", name="Dead letters").click()
    expect(page.get_by_text("poison")).to_be_visible()
    expect(page.get_by_text("422 after 1")).to_be_visible()
    button(page, "Publish again")

    expect(page.get_by_text("Published to t.")).to_be_visible()
    wait_until(lambda: api("GET", f"{base}/topics/t:offsets")["max"] == 2)


def test_users_log_in_at_issuers(open_tab: TabOpener, api: Api, service: LiveService, issuer: tuple[str, int]) -> None:
    api("POST", "/users/anna", {})
    api("POST", "/users/anna/bindings/elsewhere", {"issuer": issuer[0], "subject": "anna-1"})
    page = open_tab(token="")
    button(page, "Log in with example")
    page.get_by_placeholder("Enter any login").fill("anna-1")
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()

    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert page.url.startswith(f"{service.base_url}/console/")
    assert "code=" not in page.url
    expect(page.get_by_text("anna has no role in any project.")).to_be_visible()


@pytest.mark.parametrize("role", ROLES)
def test_each_role_sees_the_pages_that_it_may_use(open_tab: TabOpener, api: Api, project: str, role: str) -> None:
    api.topic(project)
    of_project = {"projects": [{"project": project, "roles": [role]}]}
    body = {"service_roles": [role]} if role == "service_admin" else of_project
    token = api("POST", f"/users/{project}", body)["token"]

    page = open_tab(f"p/{project}", token)

    expect(page.get_by_role("heading", name=project)).to_be_visible()
    assert page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts() == ROLES[role]
    for page_of_admins in ("Members", "Schemas"):
        page.evaluate(f"location.hash = '#/p/{project}/{page_of_admins.lower()}'")
        heading = page_of_admins if page_of_admins in ROLES[role] else "Not for you"
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    if role == "publisher":
        api("POST", f"/projects/{project}/topics/t:modifyAcl", {"authorized_users": [project]})
        page.evaluate(f"location.hash = '#/p/{project}/topics'")
        expect(page.get_by_role("link", name="t", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="New topic")).to_have_count(0)
        page.evaluate("location.hash = '#/p/of-others'")
        expect(page.get_by_role("heading", name="Not for you")).to_be_visible()


@pytest.mark.skipif(not shape.is_cluster(), reason="one process is no node")
def test_nodes_that_share_an_installation_stand_on_the_page_of_the_service(open_tab: TabOpener) -> None:
    page = open_tab("service")
    nodes = page.get_by_role("region", name="Nodes that live")
    expect(nodes.get_by_role("listitem")).to_have_count(1)
    expect(nodes.get_by_text("answered")).to_be_visible()


def test_a_clock_that_is_wrong_is_said(open_tab: TabOpener, project: str) -> None:
    def an_hour_ahead(route: Route) -> None:
        if ":watch" in route.request.url:
            return route.continue_()
        answer = route.fetch()
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 3600))
        return route.fulfill(response=answer, headers={**answer.headers, "date": date})

    page = open_tab(f"p/{project}")
    page.route("**/v1/**", an_hour_ahead)
    page.get_by_role("link", name="Topics", exact=True).click()

    expect(page.get_by_text(re.compile("This computer's clock is .* behind the service's"))).to_be_visible()
    page.unroute_all(behavior="wait")  # a request under way would fail in the next test


def test_a_live_page_survives_a_lost_service(open_tab: TabOpener, service: LiveService, api: Api, project: str) -> None:
    api.topic(project)
    with Link(int(service.base_url.rpartition(":")[2])) as link:
        console = f"http://127.0.0.1:{link.port}/console/"
        page = open_tab(token="")
        page.goto(f"{console}#token={service.token}")
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        page.goto(f"{console}#/p/{project}")
        expect(page.get_by_text("live", exact=True)).to_be_visible()

        link.cut()
        expect(page.get_by_text("not live")).to_be_visible()
        link.restore()
        expect(page.get_by_text("live", exact=True)).to_be_visible()

        page.evaluate("location.hash = '#/tokens'")
        link.cut()
        page.evaluate(f"location.hash = '#/p/{project}'")
        expect(page.get_by_role("alert").first).to_contain_text("The service cannot be reached")
        link.restore()
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)
        page.close()
