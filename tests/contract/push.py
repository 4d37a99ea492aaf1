"""Section 13, and parts of 9, 10 and 14.5: push configuration, endpoint verification, push workers; and rows of 17."""

from typing import Any

from tests.contract.push_words import *
from tests.contract.rows import *

FIELDS = [
    row("13.1, 13.2, 9.1, 9.3", "an endpoint, with defaults", create(AN_ENDPOINT),
        Answer({"name": "/projects/$P/subscriptions/S", "topic": "/projects/$P/topics/T",
            "pushConfig": ENDPOINT_CONFIG, "ackDeadlineSeconds": 10, "createdOn": "$now"}), (A_TOPIC,)),
    row("13.1, 13.2, 9.1, 9.3", "mattermost, with defaults: active at once, no secrets", create(A_HOOK),
        Answer({"name": "/projects/$P/subscriptions/S", "topic": "/projects/$P/topics/T",
            "pushConfig": HOOK_CONFIG, "ackDeadlineSeconds": 10, "createdOn": "$now"}), (A_TOPIC,)),
    row("13.1", "the official library sends an endpoint without a type", create({"pushEndpoint": URL,
        "retryPolicy": {"type": "linear", "period": 300}}),
        config(type="http_endpoint", retryPolicy={"type": "linear", "period": 300}), (A_TOPIC,)),
    row("13.1", "a hook without a type", create({"mattermostUrl": HOOK}), config(type="mattermost"), (A_TOPIC,)),
    *[row("13.1", f"a type is required: {each}", create(each), BAD_TYPE, (A_TOPIC,), ((SHOW, NO_SUBSCRIPTION),))
      for each in ({"type": "smtp"}, {"verified": True}, {"verificationHash": "x"}, {"base64Decode": True},
          {"mattermostChannel": "c"}, {"maxMessages": 1}, {"authorizationHeader": {"value": "x"}},
          {"type": "HTTP_ENDPOINT", "pushEndpoint": URL})],
    row("13.1, 13.2", "no https url", create(endpoint(pushEndpoint="http://receiver.example/in")), BAD_URL, (A_TOPIC,),
        ((SHOW, NO_SUBSCRIPTION),)),
    row("13.1, 13.2", "credentials in the url", create(endpoint(pushEndpoint="https://u:s3cret@receiver.example/in")),
        URL_CREDENTIALS, (A_TOPIC,), ((SHOW, NO_SUBSCRIPTION),)),
    row("13.1, 13.2", "credentials in mattermost's url", create(hook(mattermostUrl="https://u:s3cret@chat.example/x")),
        HOOK_CREDENTIALS, (A_TOPIC,), ((SHOW, NO_SUBSCRIPTION),)),
    row("13.1", "maxMessages as asked", create(endpoint(maxMessages=100)), config(maxMessages=100), (A_TOPIC,)),
    row("13.1", "maxMessages: 0 is 1", create(endpoint(maxMessages=0)), config(maxMessages=1), (A_TOPIC,)),
    row("13.1", "maxMessages: too many", create(endpoint(maxMessages=10_001)), BAD_COUNT, (A_TOPIC,)),
    row("13.1", "mattermost: always one message", create(hook(maxMessages=7)), config(maxMessages=1), (A_TOPIC,)),
    row("13.1", "a header asked for; its value is ignored", create(endpoint(authorizationHeader={"type": "autogen",
        "value": "mine"})), config(authorizationHeader={"type": "autogen", "value": TOKEN}), (A_TOPIC,)),
    row("13.1, 9.1", "no header: no value is shown", create(endpoint(authorizationHeader={"type": "disabled"})),
        config(authorizationHeader={"type": "disabled"}), (A_TOPIC,)),
    row("13.1, 13.2", "a header nobody knows", create(endpoint(authorizationHeader={"type": "basic"})), BAD_HEADER,
        (A_TOPIC,)),
    row("13.1", "a period in milliseconds", create(endpoint(retryPolicy={"period": 300})),
        config(retryPolicy={"type": "linear", "period": 300}), (A_TOPIC,)),
    *[row("13.1", f"a period of {each} is 3000", create(endpoint(retryPolicy={"type": "linear", "period": each})),
        config(retryPolicy={"type": "linear", "period": 3000}), (A_TOPIC,)) for each in (0, -1, None)],
    row("13.1, clients A8", "slowstart drops the period, and shows 0 where there is an endpoint",
        create(endpoint(retryPolicy={"type": "slowstart", "period": 300})),
        config(retryPolicy={"type": "slowstart", "period": 0}), (A_TOPIC,)),
    row("13.1, 9.1", "slowstart of mattermost shows no period", create(hook(retryPolicy={"type": "slowstart"})),
        config(retryPolicy={"type": "slowstart"}), (A_TOPIC,)),
    row("clients A8", "the library reads both in a list", get(SUBSCRIPTIONS), Answer({"subscriptions":
        [Has(pushConfig=Has(pushEndpoint=URL, retryPolicy={"type": "slowstart", "period": 0}))], "nextPageToken": "",
        "totalSize": 1}), (A_TOPIC, create(endpoint(retryPolicy={"type": "slowstart"})))),
    row("clients A8", "and in one", SHOW, config(retryPolicy={"type": "linear", "period": 3000}),
        (A_TOPIC, create(AN_ENDPOINT))),
    row("13.1, 13.2", "a retry policy nobody knows", create(endpoint(retryPolicy={"type": "never"})), BAD_RETRY,
        (A_TOPIC,)),
    row("13.1", "base64Decode", create(endpoint(base64Decode=True)), config(base64Decode=True), (A_TOPIC,)),
    row("13.1", "the fields of mattermost", create(hook(mattermostUsername="bot", mattermostChannel="town")),
        config(mattermostUrl=HOOK, mattermostUsername="bot", mattermostChannel="town"), (A_TOPIC,)),
    row("13.1, 13.2", "mattermost without its URL", create({"type": "mattermost", "pushEndpoint": URL}), NO_HOOK,
        (A_TOPIC,)),
    row("13.1", "verified and the hash are ignored", create(endpoint(verified=True, verificationHash="mine")),
        config(verified=False, verificationHash=TOKEN), (A_TOPIC,)),
    row("13.1", "an endpoint stores nothing of mattermost",
        create(endpoint(mattermostUrl=HOOK, mattermostUsername="bot", mattermostChannel="town")),
        config(mattermostUrl="", mattermostUsername="", mattermostChannel=""), (A_TOPIC,)),
    row("13.1", "mattermost stores nothing of an endpoint",
        create(hook(pushEndpoint=URL, authorizationHeader={"type": "autogen"})),
        config(pushEndpoint="", authorizationHeader={}, verificationHash=""), (A_TOPIC,)),
    *[row("13.1", f"a wrong type is a parse error: {each}", create(endpoint(**each)), BAD_ARGUMENTS, (A_TOPIC,))
      for each in ({"maxMessages": "1"}, {"maxMessages": 1.0}, {"retryPolicy": "linear"}, {"base64Decode": "true"},
          {"retryPolicy": {"period": 10**19}}, {"pushEndpoint": 1}, {"authorizationHeader": []})],
    row("13.1", "field names in any case", create({"TYPE": "http_endpoint", "PushEndPoint": URL,
        "RETRYPOLICY": {"Period": 300}}), config(pushEndpoint=URL, retryPolicy={"type": "linear", "period": 300}),
        (A_TOPIC,)),
]  # fmt: skip

ORDER = endpoint(pushEndpoint="x", authorizationHeader={"type": "basic"}, retryPolicy={"type": "never"})
CREATION = [
    row("13.2", "push is disabled, before all that is wrong", create(ORDER), DISABLED, BOTH, served="usual"),
    row("13.2", "no worker, before all that is wrong", create(ORDER), NO_WORKER, BOTH, served="push without a worker"),
    row("13.2, 9.3", "an unknown topic comes first", create(ORDER, topic="projects/$P/topics/none"), NO_TOPIC),
    row("13.2", "then the URL", create(ORDER), BAD_URL, BOTH),
    row("13.2", "then the header", create({**ORDER, "pushEndpoint": URL}), BAD_HEADER, BOTH),
    row("13.2, 9.3", "a taken name comes last", create(AN_ENDPOINT), TAKEN, BOTH),
    row("13.2", "an endpoint is not active until verified", SHOW, Answer(Has(pushStatus=None)),
        (A_TOPIC, create(AN_ENDPOINT)), ((get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": []})),)),
    row("13.2, 13.5", "mattermost puts the worker on the list at once", get(SUBSCRIPTION + ":acl"),
        Answer({"authorized_users": ["push_worker_0"]}), WITH_HOOK, ((OF_WORKER, places("S")),)),
    row("9.3", "an empty configuration is none", create({"retryPolicy": {"type": ""}, "base64Decode": False}),
        Answer(Has(pushConfig=PULL_CONFIG)), (A_TOPIC,)),
]  # fmt: skip

AUTOGEN = {"type": "autogen"}
NEW_HEADER = {"type": "autogen", "value": OtherSecret("$header_before")}
SAME_HEADER = {"type": "autogen", "value": "$header_before"}
CHANGE = [
    row("13.3", "parse error first", post(MODIFY, {"pushConfig": []}), BAD_ARGUMENTS),
    row("13.3", "an empty body is a parse error", post(MODIFY), BAD_ARGUMENTS, BOTH),
    row("13.3", "an unknown subscription, before all that is wrong", modify(ORDER), NO_SUBSCRIPTION, served="usual"),
    row("13.3", "an unknown subscription, also to make it pull", modify({}), NO_SUBSCRIPTION),
    row("13.3", "push is disabled", modify(ORDER), DISABLED, BOTH, served="usual"),
    row("13.3", "no worker", modify(ORDER), NO_WORKER, BOTH, served="push without a worker"),
    row("13.3", "the retry policy first", modify(ORDER), BAD_RETRY, BOTH),
    row("13.3", "then the URL", modify(endpoint(pushEndpoint="x", authorizationHeader={"type": "basic"})), BAD_URL,
        BOTH),
    row("13.3", "mattermost's URL", modify({"type": "mattermost"}), NO_HOOK, BOTH),
    row("13.3", "what is refused changes nothing", modify(endpoint(pushEndpoint="x")), BAD_URL,
        BEFORE, show_step(config(pushEndpoint=URL, verificationHash="$hash_before", authorizationHeader=SAME_HEADER))),
    row("13.3, 9.2", "pull to an endpoint", modify(AN_ENDPOINT), EMPTY, BOTH,
        show_step(Answer(Has(pushConfig=ENDPOINT_CONFIG)))),
    row("13.3", "pull to mattermost", modify(A_HOOK), EMPTY, BOTH, show_step(Answer(Has(pushConfig=HOOK_CONFIG)))),
    *[row("13.3", f"an empty configuration makes it pull: {body}", post(MODIFY, body), EMPTY, BEFORE,
        show_step(Answer(Has(pushConfig=PULL_CONFIG, pushStatus=None))))
      for body in ({}, {"pushConfig": {}}, {"pushConfig": None}, {"pushConfig": {"maxMessages": 0}})],
    row("13.3", "which is allowed while push is disabled", modify({}), EMPTY, BOTH, served="usual"),
    row("13.3", "and without a worker", modify({}), EMPTY, BOTH, served="push without a worker"),
    row("13.3", "absent fields take the defaults", modify(AN_ENDPOINT), EMPTY,
        (A_TOPIC, create(endpoint(retryPolicy={"type": "slowstart"})), SHOW),
        show_step(config(retryPolicy={"type": "linear", "period": 3000}))),
    row("13.3", "but maxMessages stays", modify(AN_ENDPOINT), EMPTY, (A_TOPIC, create(endpoint(maxMessages=7)), SHOW),
        show_step(config(maxMessages=7))),
    row("13.3", "or is what is asked", modify(endpoint(maxMessages=8)), EMPTY,
        (A_TOPIC, create(endpoint(maxMessages=7)), SHOW), show_step(config(maxMessages=8))),
    row("13.3", "another endpoint: a new hash, to be verified", modify(endpoint(pushEndpoint=URL + "/2")), EMPTY,
        BEFORE,
        show_step(config(pushEndpoint=URL + "/2", verified=False, verificationHash=OtherSecret("$hash_before")))),
    row("13.3", "the same endpoint keeps its hash", modify(endpoint(maxMessages=2)), EMPTY, BEFORE,
        show_step(config(verificationHash="$hash_before", maxMessages=2))),
    row("13.3", "an endpoint after mattermost waits to be verified", modify(AN_ENDPOINT), EMPTY, WITH_HOOK,
        show_step(Answer(Has(pushConfig=ENDPOINT_CONFIG, pushStatus=None)))),
    row("13.3", "a header asked for is a new one each time", modify(endpoint(authorizationHeader=AUTOGEN)), EMPTY,
        BEFORE, show_step(config(authorizationHeader=NEW_HEADER))),
    row("13.3", "disabled has no value", modify(endpoint(authorizationHeader={"type": "disabled"})), EMPTY, BEFORE,
        show_step(config(authorizationHeader={"type": "disabled"}))),
    row("13.3", "absent after autogen: kept", modify(endpoint(pushEndpoint=URL + "/2")), EMPTY, BEFORE,
        show_step(config(authorizationHeader=SAME_HEADER))),
    row("13.3, 17.2 A11", "absent after mattermost: a new one", modify(AN_ENDPOINT), EMPTY, WITH_HOOK,
        show_step(config(authorizationHeader={"type": "autogen", "value": TOKEN}))),
    row("17.2 A10", "base64Decode survives a change that does not speak of it", modify(endpoint(maxMessages=2)), EMPTY,
        (A_TOPIC, create(endpoint(base64Decode=True))), show_step(config(base64Decode=True))),
    row("17.2 A10", "it is stored when it is asked for", modify(endpoint(base64Decode=True)), EMPTY, BEFORE,
        show_step(config(base64Decode=True))),
    row("17.2 A10", "and taken away when that is asked for", modify(endpoint(base64Decode=False)), EMPTY,
        (A_TOPIC, create(endpoint(base64Decode=True))), show_step(config(base64Decode=False))),
    row("17.2 A10", "it survives verifying", post(VERIFY), EMPTY,
        (A_TOPIC, create({**GOOD, "base64Decode": True}), SHOW), show_step(config(base64Decode=True, verified=True))),
    row("13.3", "a verified endpoint that stays the same stays active", modify({**GOOD, "maxMessages": 3}), EMPTY,
        VERIFIED, (*show_step(Answer(Has(pushConfig=Has(verified=True, maxMessages=3), pushStatus=UNREACHABLE))),
            (OF_WORKER, places("S")))),
    row("13.3, 13.5", "another endpoint: the worker leaves the list and stays linked", modify(AN_ENDPOINT), EMPTY,
        VERIFIED, ((OF_WORKER, places()), (get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": []})))),
    row("13.3, 13.5", "pull: the worker leaves the list, others stay", modify({}), EMPTY,
        (*VERIFIED, CONSUMER, post(SUBSCRIPTION + ":modifyAcl", {"authorized_users": ["$P-con", "push_worker_0"]})),
        ((OF_WORKER, places()), (get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": ["$P-con"]})))),
    row("13.3, 13.5", "mattermost: the worker goes to the end of the list", modify(A_HOOK), EMPTY,
        (*BOTH, CONSUMER, modify_acl(SUBSCRIPTION, "con")),
        ((get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": ["$P-con", "push_worker_0"]})),)),
]  # fmt: skip

DEAD = put("/projects/$P/topics/D")
THERE = "/projects/$P/topics/D"
WRONG_DEAD_LETTERS = [
    ("too few attempts", {"deadLetterTopic": "D", "maxDeliveryAttempts": -1}, BAD_ATTEMPTS),
    ("too many attempts", {"deadLetterTopic": "D", "maxDeliveryAttempts": 1001}, BAD_ATTEMPTS),
    ("attempts without a topic", {"maxDeliveryAttempts": 3}, NO_DEAD_LETTERS),
    ("a topic that is not there", {"deadLetterTopic": "none"}, NO_TOPIC),
    ("a reference to one that is not there", {"deadLetterTopic": "projects/$P/topics/none"}, NO_TOPIC),
    ("the subscription's own topic", {"deadLetterTopic": "T"}, OWN_TOPIC),
    ("a reference to its own topic", {"deadLetterTopic": "projects/$P/topics/T"}, OWN_TOPIC),
    ("a topic of another project", {"deadLetterTopic": "projects/other/topics/D"}, BAD_TOPIC),
    ("no name", {"deadLetterTopic": "a@b"}, BAD_TOPIC),
    ("half a reference", {"deadLetterTopic": "topics/D"}, BAD_TOPIC),
]
"""Invalid dead letter policies."""
DEAD_LETTERS = [
    *[row("ours dead letters", f"of {what}: {each!r} is shown as topics are, with five attempts",
        create({**kind, "deadLetterTopic": each}), config(deadLetterTopic=THERE, maxDeliveryAttempts=5),
        (A_TOPIC, DEAD), show_step(config(deadLetterTopic=THERE, maxDeliveryAttempts=5)))
      for what, kind in (("an endpoint", AN_ENDPOINT), ("mattermost", A_HOOK))
      for each in ("D", "projects/$P/topics/D", THERE)],
    row("ours dead letters", "attempts as asked", create(endpoint(deadLetterTopic="D", maxDeliveryAttempts=1000)),
        config(maxDeliveryAttempts=1000), (A_TOPIC, DEAD)),
    row("ours dead letters, 9.1", "without them there is nothing to see", create(AN_ENDPOINT),
        config(deadLetterTopic=None, maxDeliveryAttempts=None), (A_TOPIC,)),
    row("ours dead letters", "alone they are no configuration", create({"deadLetterTopic": "D"}), BAD_TYPE,
        (A_TOPIC, DEAD)),
    *[row("ours dead letters", f"at creation: {says}", create(endpoint(**fields)), gets, (A_TOPIC, DEAD),
        ((SHOW, NO_SUBSCRIPTION),)) for says, fields, gets in WRONG_DEAD_LETTERS],
    *[row("ours dead letters", f"changed: {says}", modify(endpoint(maxMessages=9, **fields)), gets, (DEAD, *BEFORE),
        show_step(config(maxMessages=1, deadLetterTopic=None))) for says, fields, gets in WRONG_DEAD_LETTERS],
    row("ours dead letters", "the URL, as told before them",
        modify(endpoint(pushEndpoint="x", deadLetterTopic="none", maxDeliveryAttempts=-1)), BAD_URL, BOTH),
    row("ours dead letters", "a wrong type is a parse error", modify(endpoint(maxDeliveryAttempts="5")), BAD_ARGUMENTS,
        BOTH),
    row("ours dead letters", "asked for by a change", modify(endpoint(deadLetterTopic="D", maxDeliveryAttempts=2)),
        EMPTY, (DEAD, *BEFORE), show_step(config(deadLetterTopic=THERE, maxDeliveryAttempts=2))),
    row("ours dead letters, 13.3", "a change that does not speak of them takes them away", modify(AN_ENDPOINT), EMPTY,
        (A_TOPIC, DEAD, create(endpoint(deadLetterTopic="D"))),
        show_step(config(deadLetterTopic=None, maxDeliveryAttempts=None))),
    row("ours dead letters", "they outlive their topic", delete(THERE), EMPTY,
        (A_TOPIC, DEAD, create(endpoint(deadLetterTopic="D"))), show_step(config(deadLetterTopic=THERE))),
    row("ours retry", "exponential begins with a second", create(endpoint(retryPolicy={"type": "exponential"})),
        config(retryPolicy={"type": "exponential", "period": 1000}), (A_TOPIC,)),
    row("ours retry", "or with what is asked", create(hook(retryPolicy={"type": "exponential", "period": 50})),
        config(retryPolicy={"type": "exponential", "period": 50}), (A_TOPIC,)),
]  # fmt: skip

OF_PARALLEL = {"type": "parallel", "deadLetterPolicy": {"deadLetterTopic": "D"}}
WRONG_OF_ORDERED = [
    ("a negative one", {"maxOutstanding": -1}, BAD_OUTSTANDING),
    ("too many", {"maxOutstanding": 1001}, BAD_OUTSTANDING),
    ("of an ordered subscription", {"maxOutstanding": 1}, NOT_PARALLEL),
]
WRONG_OF_PARALLEL = [
    *WRONG_OF_ORDERED[:2], ("a dead letter topic", {"deadLetterTopic": "D"}, LETTERS_BY_POLICY),
    ("too many, with a dead letter topic", {"deadLetterTopic": "D", "maxOutstanding": 1001}, BAD_OUTSTANDING),
]  # fmt: skip
A_PARALLEL = (A_TOPIC, DEAD, create(AN_ENDPOINT, **OF_PARALLEL))
OUTSTANDING = [
    *[row("13.1, 19.1", f"maxOutstanding of {what}", create({**kind, "maxOutstanding": 1000}, **OF_PARALLEL),
        config(maxOutstanding=1000), (A_TOPIC, DEAD),
        show_step(Answer(Has(type="parallel", pushConfig=Has(maxOutstanding=1000)))))
      for what, kind in (("an endpoint", AN_ENDPOINT), ("mattermost", A_HOOK))],
    *[row("13.1, 19.1", f"maxOutstanding: {each} is not shown", create(endpoint(maxOutstanding=each), **OF_PARALLEL),
        config(maxOutstanding=None), (A_TOPIC, DEAD)) for each in (0, None)],
    row("13.1", "0 says nothing of an ordered one", create(endpoint(maxOutstanding=0)), config(maxOutstanding=None),
        (A_TOPIC,)),
    *[row("19.1", f"at creation: {says}", create(endpoint(**fields)), gets, (A_TOPIC,), ((SHOW, NO_SUBSCRIPTION),))
      for says, fields, gets in WRONG_OF_ORDERED],
    *[row("19.1", f"at creation of a parallel one: {says}", create(endpoint(**fields), **OF_PARALLEL), gets,
        (A_TOPIC, DEAD), ((SHOW, NO_SUBSCRIPTION),)) for says, fields, gets in WRONG_OF_PARALLEL],
    *[row("13.3, 19.1", f"a parallel one changed: {says}", modify(endpoint(maxMessages=9, **fields)), gets, A_PARALLEL,
        show_step(config(maxMessages=1, maxOutstanding=None, deadLetterTopic=None)))
      for says, fields, gets in WRONG_OF_PARALLEL],
    row("13.3, 19.1", "asked for by a change", modify(endpoint(maxOutstanding=7)), EMPTY, A_PARALLEL,
        show_step(config(maxOutstanding=7))),
    row("13.3, 19.1", "a change that does not speak of it takes it away", modify(AN_ENDPOINT), EMPTY,
        (A_TOPIC, DEAD, create(endpoint(maxOutstanding=7), **OF_PARALLEL)), show_step(config(maxOutstanding=None))),
    row("13.3, 19.1", "an unknown subscription first", modify(endpoint(maxOutstanding=-1)), NO_SUBSCRIPTION),
    row("13.3, 19.1", "push is disabled first", modify(endpoint(maxOutstanding=-1)), DISABLED, BOTH, served="usual"),
    row("13.3, 19.1", "after what is wrong with the endpoint", modify(endpoint(pushEndpoint="x", maxOutstanding=-1)),
        BAD_URL, BOTH),
    row("13.1", "a wrong type is a parse error", modify(endpoint(maxOutstanding="5")), BAD_ARGUMENTS, BOTH),
]  # fmt: skip

# Verified endpoints, push workers, and push status


def unverified_error(reason: str) -> Answer:
    return error("UN", f"Endpoint verification failed.{reason}")


def create_at_host(host: str) -> tuple[Request, ...]:
    return (A_TOPIC, create(endpoint(pushEndpoint=f"https://{host}/in?x=y")), SHOW)


WAITS = show_step(Answer(Has(pushConfig=Has(verified=False), pushStatus=None)))
VERIFYING = [
    row("13.4", "push is disabled, before an unknown subscription", post(VERIFY), DISABLED, served="usual"),
    row("13.4", "no worker, before an unknown subscription", post(VERIFY), NO_WORKER, served="push without a worker"),
    row("13.4", "an unknown subscription", post(VERIFY), NO_SUBSCRIPTION),
    row("13.4", "a pull subscription", post(VERIFY), error("CO", "Subscription is not in http push mode"), BOTH),
    row("13.4", "mattermost", post(VERIFY), error("CO", "Subscription is not in http push mode"), WITH_HOOK),
    row("13.4", "already verified", post(VERIFY), error("CO", "Push endpoint is already verified"), VERIFIED),
    row("13.4", "the hash at the root of the host: verified", post(VERIFY), EMPTY, (A_TOPIC, create(GOOD), SHOW),
        show_step(Answer(Has(pushConfig=Has(verified=True, verificationHash="$hash_before"), pushStatus=UNREACHABLE)))),
    row("13.4", "what the body says does not matter", post(VERIFY, b"{"), EMPTY, (A_TOPIC, create(GOOD), SHOW)),
    row("13.4", "another hash", post(VERIFY), unverified_error("Wrong verification hash"), create_at_host("$other"),
        WAITS),
    row("13.4", "another status", post(VERIFY), unverified_error("Wrong response status code"),
        create_at_host("$broken"), WAITS),
    row("13.4", "no connection", post(VERIFY), Answer(Has(error=Has(code=401, status="UNAUTHORIZED",
        message=Like(r"Endpoint verification failed\.\S.*"))), 401), create_at_host("127.0.0.1:1"), WAITS),
    row("13.4, 17.2 A12", "an address inside", post(VERIFY),
        unverified_error("10.0.0.1 is not a public address"), create_at_host("10.0.0.1"), WAITS),
    row("13.4, 17.2 A12", "a cloud's metadata", post(VERIFY),
        unverified_error("169.254.169.254 is not a public address"), create_at_host("169.254.169.254"), WAITS),
    row("13.4, 13.5", "the worker goes on the list and into the project", OF_WORKER, places("S"), VERIFIED,
        ((get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": ["push_worker_0"]})),)),
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
    row("13.5", "it pulls and acknowledges", pull(by="worker"), batch_with_ids(0), (*WITH_HOOK, publish()),
        ((ack(0, by="worker"), OK), (pull(by="worker"), batch_with_ids()))),
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
FOR_CONSUMER = (*BEFORE, CONSUMER, modify_acl(SUBSCRIPTION, "con"))


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
        (*BEFORE, ADMIN),
        ((pull(), batch_with_ids()), (pull(by="service"), batch_with_ids()), (pull(by="worker"), batch_with_ids()))),
    row("10.3, 17.2 A5", "no consumer, though it is listed", pull(by="con"), FORBIDDEN, FOR_CONSUMER),
    row("17.2 A5", "only they acknowledge", ack(0, by="adm"), FORBIDDEN, (*BEFORE, ADMIN, publish(), pull()),
        ((ack(0, by="worker"), Answer({})),)),
    row("17.2 A5", "no consumer does", ack(0, by="con"), FORBIDDEN, (*FOR_CONSUMER, publish(), pull()),
        ((ack(0), Answer({})),)),
    row("17.2 A5", "back in pull mode the consumer does again", pull(by="con"), batch_with_ids(), (*FOR_CONSUMER,
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
]  # fmt: skip

ROWS = [*FIELDS, *CREATION, *CHANGE, *DEAD_LETTERS, *OUTSTANDING, *VERIFYING, *WORKER, *SEEN, *STATUS]
