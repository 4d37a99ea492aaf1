"""Shared helpers for the rows of push (`push.py`, `ours_push.py`)."""

from typing import Any

from tests.contract.resources import PULL_CONFIG
from tests.contract.rows import *

URL = "https://receiver.example/in"
HOOK = "https://chat.example/hooks/x"
REFERENCE = "projects/$P/topics/T"
MODIFY, VERIFY = SUBSCRIPTION + ":modifyPushConfig", SUBSCRIPTION + ":verifyPushEndpoint"
SHOW = get(SUBSCRIPTION)
AN_ENDPOINT = {"type": "http_endpoint", "pushEndpoint": URL}
A_HOOK = {"type": "mattermost", "mattermostUrl": HOOK}

DISABLED = error("CO", "Push functionality is currently disabled")
NO_WORKER = error("IE", "Push functionality is currently unavailable", retry_after="2")
BAD_ARGUMENTS = error("IA", "Invalid Subscription Arguments")
BAD_URL = error("IA", "Push endpoint should be addressed by a valid https url")
URL_CREDENTIALS = error("IA", "Push endpoint should be a url without a user and password: set authorizationHeader to"
                        " 'autogen', and let the receiver look at its value")  # fmt: skip
HOOK_CREDENTIALS = error("IA", "Field mattermostUrl should be a url without a user and password: the address of an"
                         " incoming webhook is enough")  # fmt: skip
BAD_HEADER = error("IA", "Authorization header type can only be of 'autogen' or 'disabled' type")
BAD_TYPE = error("IA", "Push configuration type can only be of 'http_endpoint' or 'mattermost'")
BAD_RETRY = error("IA", "Retry policy can only be of 'linear' or 'slowstart' type")
BAD_COUNT = error("IA", "Field maxMessages should be between 1 and 10000")
BAD_ATTEMPTS = error("IA", "Field maxDeliveryAttempts should be between 1 and 1000")
NO_DEAD_LETTERS = error("IA", "Field maxDeliveryAttempts needs a deadLetterTopic")
OWN_TOPIC = error("IA", "A subscription's own topic cannot be its deadLetterTopic")
BAD_OUTSTANDING = error("IA", "Field maxOutstanding should be between 1 and 1000")
NOT_PARALLEL = error("IA", "Field maxOutstanding needs a subscription of type parallel")
LETTERS_BY_POLICY = error(
    "IA", "A subscription of type parallel has a deadLetterPolicy in the place of pushConfig.deadLetterTopic"
)
BAD_TOPIC = error("IA", "Invalid Topic name")
NO_HOOK = error("IA", "Field mattermostUrl cannot be empty")
TAKEN = error("AE", "Subscription already exists")
UNREACHABLE = "Push server is currently unavailable"

ENDPOINT_CONFIG = {
    **PULL_CONFIG, **AN_ENDPOINT, "maxMessages": 1, "authorizationHeader": {"type": "autogen", "value": TOKEN},
    "retryPolicy": {"type": "linear", "period": 3000}, "verificationHash": TOKEN,
}  # fmt: skip
HOOK_CONFIG = {
    **PULL_CONFIG, **A_HOOK, "maxMessages": 1, "retryPolicy": {"type": "linear", "period": 3000}, "verified": True,
}  # fmt: skip
CONSUMER, ADMIN = member("con", "consumer"), member("adm", "project_admin")


def create(config: object, **body: object) -> Request:
    return put(SUBSCRIPTION, {"topic": REFERENCE, "pushConfig": config, **body})


def modify(config: object, by: str = "admin") -> Request:
    return post(MODIFY, {"pushConfig": config}, by)


def endpoint(**fields: object) -> dict[str, object]:
    return {**AN_ENDPOINT, **fields}


def hook(**fields: object) -> dict[str, object]:
    return {**A_HOOK, **fields}


def config(**fields: Any) -> Answer:
    """Return a subscription with these fields in its push configuration."""
    return Answer(Has(pushConfig=Has(**fields)))


def show_step(answer: Answer) -> tuple[tuple[Request, Answer], ...]:
    return ((SHOW, answer),)


def places(*subscriptions: str, roles: tuple[str, ...] = ()) -> Answer:
    """Return the push worker with one membership here, on these access lists."""
    here = {"project": "$P", "roles": list(roles), "topics": [], "subscriptions": list(subscriptions)}
    return Answer(Has(name="push_worker_0", service_roles=["push_worker"], projects=ListWith(here)))


OF_WORKER = get("/users:byToken/$token_worker", by="worker")
OF_MEMBER = get(MEMBERS + "/push_worker_0", by="adm")
GOOD = endpoint(pushEndpoint="https://$receiver/in")
BEFORE = (A_TOPIC, create(AN_ENDPOINT), SHOW)
VERIFIED = (A_TOPIC, create(GOOD), SHOW, post(VERIFY))
WITH_HOOK = (A_TOPIC, create(A_HOOK))


def row(line: str, says: str, ask: Request, gets: Answer, *more: Any, served: str = "push") -> Row:
    return Row(line, says, ask, gets, *more, served=served)
