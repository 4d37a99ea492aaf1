"""Sections 13.4 to 13.6: endpoints verified, who delivers, what is told; parts of 9, 10, 14.5; 17.2, 17.3."""

from typing import Any

from tests.contract.push_words import *
from tests.contract.rows import *


def unverified(reason: str) -> Answer:
    return error("UN", f"Endpoint verification failed.{reason}")


def at(host: str) -> tuple[Ask, ...]:
    return (A_TOPIC, create(endpoint(pushEndpoint=f"https://{host}/in?x=y")), SHOW)


WAITS = kept(Answer(Has(pushConfig=Has(verified=False), pushStatus=None)))
VERIFYING = [
    row("13.4", "push is disabled, before an unknown subscription", post(VERIFY), DISABLED, served="usual"),
    row("13.4", "no worker, before an unknown subscription", post(VERIFY), NO_WORKER, served="push without a worker"),
    row("13.4", "an unknown subscription", post(VERIFY), NO_SUBSCRIPTION),
    row("13.4", "a pull subscription", post(VERIFY), error("CO", "Subscription is not in http push mode"), BOTH),
    row("13.4", "mattermost", post(VERIFY), error("CO", "Subscription is not in http push mode"), WITH_HOOK),
    row("13.4", "already verified", post(VERIFY), error("CO", "Push endpoint is already verified"), VERIFIED),
    row("13.4", "the hash at the root of the host: verified", post(VERIFY), EMPTY, (A_TOPIC, create(GOOD), SHOW),
        kept(Answer(Has(pushConfig=Has(verified=True, verificationHash="$hash_before"), pushStatus=UNREACHABLE)))),
    row("13.4", "what the body says does not matter", post(VERIFY, b"{"), EMPTY, (A_TOPIC, create(GOOD), SHOW)),
    row("13.4", "another hash", post(VERIFY), unverified("Wrong verification hash"), at("$other"), WAITS),
    row("13.4", "another status", post(VERIFY), unverified("Wrong response status code"), at("$broken"), WAITS),
    row("13.4", "no connection", post(VERIFY), Answer(Has(error=Has(code=401, status="UNAUTHORIZED",
        message=Like(r"Endpoint verification failed\.\S.*"))), 401), at("127.0.0.1:1"), WAITS),
    row("13.4, 17.2 A12", "an address inside", post(VERIFY),
        unverified("10.0.0.1 is not a public address"), at("10.0.0.1"), WAITS),
    row("13.4, 17.2 A12", "a cloud's metadata", post(VERIFY),
        unverified("169.254.169.254 is not a public address"), at("169.254.169.254"), WAITS),
    row("13.4, 13.5", "the worker goes on the list and into the project", OF_WORKER, places("S"), VERIFIED,
        ((get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": ["push_worker_0"]})),)),
    row("13.4", "for administrators", post(VERIFY, by="adm"), EMPTY, (A_TOPIC, create(GOOD), SHOW, ADMIN)),
    row("13.4", "not for consumers", post(VERIFY, by="con"), FORBIDDEN, (A_TOPIC, create(GOOD), SHOW, CONSUMER)),
]  # fmt: skip

ADD_WORKER = post(MEMBERS + "/push_worker_0:add", {"roles": ["consumer"]})
TO_ADMIN = post(SUBSCRIPTION + ":modifyAcl", {"authorized_users": ["admin"]})
WORKER = [
    row("13.5", "the worker is made with its token", OF_WORKER, Answer(Has(name="push_worker_0",
        token="$token_worker", service_roles=["push_worker"]))),
    row("13.5", "it finds every active subscription", OF_WORKER, places("S", "R"), (*WITH_HOOK,
        put(SUBSCRIPTIONS + "/R", {"topic": REFERENCE, "pushConfig": A_HOOK}), put(SUBSCRIPTIONS + "/N",
        {"topic": REFERENCE, "pushConfig": AN_ENDPOINT}))),
    row("13.5", "it reads the subscription with its secrets", get(SUBSCRIPTION, by="worker"),
        Answer(Has(pushConfig=Has(authorizationHeader={"type": "autogen", "value": TOKEN}))), VERIFIED),
    row("13.5", "it pulls and acknowledges", pull(by="worker"), received(0), (*WITH_HOOK, publish()),
        ((ack(0, by="worker"), OK), (pull(by="worker"), received()))),
    row("13.5", "its memberships begin without roles", OF_MEMBER, Answer(Has(projects=[{"project": "$P", "roles": [],
        "topics": [], "subscriptions": ["S"]}])), (*WITH_HOOK, ADMIN)),
    row("13.5, 17.3 U14", "a second subscription does not double the membership", OF_MEMBER, Answer(Has(projects=[{
        "project": "$P", "roles": [], "topics": [], "subscriptions": ["S", "R"]}])), (*WITH_HOOK, ADMIN,
        put(SUBSCRIPTIONS + "/R", {"topic": REFERENCE, "pushConfig": A_HOOK}))),
    row("17.3 U14", "nor does it where the worker has roles already", OF_MEMBER, Answer(Has(projects=[{"project": "$P",
        "roles": ["consumer"], "topics": [], "subscriptions": ["S"]}])), (ADD_WORKER, *WITH_HOOK, ADMIN)),
    row("9.2, 13.5", "deleting leaves the worker in the project", delete(SUBSCRIPTION),
        Answer({"message": UNREACHABLE}), WITH_HOOK, ((OF_WORKER, places()),)),
    row("17.3 U2", "without its user no user leaves the list", modify({}), EMPTY, (*WITH_HOOK,
        post(MEMBERS + "/admin:add", {"roles": ["consumer"]}), TO_ADMIN, delete("/users/push_worker_0")),
        ((get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": ["admin"]})),
         (modify(A_HOOK), NO_WORKER)), served="push, its worker lost"),
]  # fmt: skip

SECRETS = {"verificationHash": TOKEN, "authorizationHeader": {"type": "autogen", "value": TOKEN}}
HIDDEN = {"verificationHash": "", "authorizationHeader": {"type": "autogen"}}
FOR_CONSUMER = (*BEFORE, CONSUMER, listed(SUBSCRIPTION, "con"))


def page(config: dict[str, Any]) -> Answer:
    return Answer({"subscriptions": [Has(pushConfig=Has(**config))], "nextPageToken": "", "totalSize": 1})


SEEN = [
    *[row("17.2 A14", f"the secrets are shown to {name}", get(SUBSCRIPTION, by=by), config(**SECRETS), given)
      for name, by, given in (("a service admin", "admin", BEFORE), ("the service token", "service", BEFORE),
          ("a project admin", "adm", (*BEFORE, ADMIN)), ("the worker", "worker", BEFORE),
          ("a project admin who consumes", "two", (*BEFORE, member("two", "project_admin", "consumer"))))],
    row("17.2 A14", "not to a consumer", get(SUBSCRIPTION, by="con"), config(pushEndpoint=URL, **HIDDEN), FOR_CONSUMER),
    row("17.2 A14", "nor in its list", get(SUBSCRIPTIONS, by="con"), page(HIDDEN), FOR_CONSUMER),
    row("17.2 A14", "administrators see them in lists", get(SUBSCRIPTIONS, by="adm"), page(SECRETS), (*BEFORE, ADMIN)),
    row("9.1, 13.6, 17.2 A13", "the status is true of what nobody delivers", SHOW,
        Answer(Has(pushStatus=UNREACHABLE)), WITH_HOOK),
    row("9.1", "no status in lists", get(SUBSCRIPTIONS), Answer({"subscriptions": [Has(pushStatus=None)],
        "nextPageToken": "", "totalSize": 1}), WITH_HOOK),
    row("9.1", "nor at creation", create(A_HOOK), Answer(Has(pushStatus=None)), (A_TOPIC,)),
    row("9.1", "nor of a pull subscription", SHOW, Answer(Has(pushStatus=None, pushConfig=PULL_CONFIG)), BOTH),
    row("17.2 A13", "what is wanted is kept: verified, active as soon as a process delivers", SHOW,
        Answer(Has(pushConfig=Has(verified=True), pushStatus=UNREACHABLE)), VERIFIED, ((OF_WORKER, places("S")),)),
    row("9.2, 13.6", "deleting an active one says what becomes of it", delete(SUBSCRIPTION),
        Answer({"message": UNREACHABLE}), VERIFIED, ((SHOW, NO_SUBSCRIPTION),)),
    row("9.2", "deleting one that waits is empty", delete(SUBSCRIPTION), EMPTY, BEFORE),
    row("10.3, 17.2 A5", "only worker and service admin pull in push mode", pull(by="adm"), FORBIDDEN,
        (*BEFORE, ADMIN), ((pull(), received()), (pull(by="service"), received()), (pull(by="worker"), received()))),
    row("10.3, 17.2 A5", "no consumer, though it is listed", pull(by="con"), FORBIDDEN, FOR_CONSUMER),
    row("17.2 A5", "only they acknowledge", ack(0, by="adm"), FORBIDDEN, (*BEFORE, ADMIN, publish(), pull()),
        ((ack(0, by="worker"), Answer({})),)),
    row("17.2 A5", "no consumer does", ack(0, by="con"), FORBIDDEN, (*FOR_CONSUMER, publish(), pull()),
        ((ack(0), Answer({})),)),
    row("17.2 A5", "back in pull mode the consumer does again", pull(by="con"), received(), (*FOR_CONSUMER,
        modify({}))),
    row("8, 9.2", "a rename of the project is in the message too", delete("/projects/$P-2/subscriptions/S"),
        Answer({"message": UNREACHABLE}), (*WITH_HOOK, put(PROJECT, {"name": "$P-2"}))),
]  # fmt: skip

AT_HOST = {"endpoint": "127.0.0.1:1", "status": UNREACHABLE}
STATUS = [
    row("14.5, 13.6", "push enabled", get("/status", by="nobody"), Answer({"status": "ok", "push_servers": [AT_HOST]})),
    row("14.5", "with details, the connection's own words", get("/status?details=true"), Answer({"status": "ok",
        "push_servers": [{"endpoint": "127.0.0.1:1", "status": Like(r"(?!Push server is).+")}]})),
    row("14.5", "nobody has the worker's token", get("/status", by="nobody"), Answer({"status": "warning",
        "push_servers": [{"endpoint": "internal", "status": UNREACHABLE}]}), served="push without a worker"),
    row("14.5, 17.4 O6", "details for nobody", get("/status?details=true", by="nobody"), UNAUTHORIZED),
    row("14.5, 17.4 O6", "details for a worker", get("/status?details=true", by="worker"), FORBIDDEN),
    row("14.5", "details for an admin viewer", get("/status?details=true", by="av"), OK, (user("av", "admin_viewer"),)),
]  # fmt: skip

ROWS = [*VERIFYING, *WORKER, *SEEN, *STATUS]
