"""Section 1.6: versions of resources that are read, changed and written whole; and patched access lists."""

from tests.contract.push_words import GOOD, VERIFY, config, create
from tests.contract.rows import *

CHANGED = custom_error(412, "FAILED_PRECONDITION", "It was changed meanwhile: read it again, nothing was done")
A_SCHEMA, CHANGED_SCHEMA = {"type": "json", "schema": {"type": "object"}}, {"schema": {"type": "array"}}
ISSUER = {"url": "https://$P.example", "audiences": ["ams"]}
PARALLEL = put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", "type": "parallel"})
ISSUERS = "/issuers/$P-x"
USER = "/users/$P-pub"
MEMBER = MEMBERS + "/$P-pub"
NO_PUSH: dict[str, object] = {"pushConfig": {}}
QUOTAS = {"quotas": {"topics": 7}}


def change_acl(resource: str, *names: str) -> Request:
    return post(f"{resource}:changeAcl", {"add": [f"$P-{name}" for name in names]})


def deadline(seconds: int) -> Request:
    return post(SUBSCRIPTION + ":modifyAckDeadline", {"ackDeadlineSeconds": seconds})


def modify_retention(resource: str, seconds: int) -> Request:
    return post(resource + ":modifyRetention", {"retentionSeconds": seconds})


def roles(*names: str, path: str = MEMBER) -> Request:
    return put(path, {"projects": [{"project": "$P", "roles": list(names)}]})


TOPIC_ATTACHED = post(TOPIC + ":attachSchema", {"schema": "projects/$P/schemas/X"})
WITH_SCHEMA = (A_TOPIC, post(SCHEMA, A_SCHEMA))
IN_BOTH = (*BOTH, PUB, CON)

CASES = [
    ("the access list of a topic", IN_BOTH, TOPIC + ":acl", modify_acl(TOPIC, "pub"), (
        modify_acl(TOPIC, "con"), modify_acl(TOPIC), change_acl(TOPIC, "con"))),
    ("the access list of a subscription", IN_BOTH, SUBSCRIPTION + ":acl", modify_acl(SUBSCRIPTION, "pub"), (
        modify_acl(SUBSCRIPTION, "con"), change_acl(SUBSCRIPTION, "con"))),
    ("a topic", WITH_SCHEMA, TOPIC, modify_retention(TOPIC, 60), (
        modify_retention(TOPIC, 120), TOPIC_ATTACHED, post(TOPIC + ":detachSchema"), delete(TOPIC))),
    ("a topic whose schema was attached", WITH_SCHEMA, TOPIC, TOPIC_ATTACHED, (post(TOPIC + ":detachSchema"),)),
    ("a subscription", (A_TOPIC, PARALLEL), SUBSCRIPTION, deadline(30), (
        deadline(40), post(SUBSCRIPTION + ":update", {"retainAckedMessages": True}), post(SUBSCRIPTION + ":detach"),
        post(SUBSCRIPTION + ":modifyPushConfig", NO_PUSH), delete(SUBSCRIPTION))),
    ("a schema", WITH_SCHEMA, SCHEMA, put(SCHEMA, CHANGED_SCHEMA), (
        put(SCHEMA, {"schema": {"type": "string"}}), put(SCHEMA, {"name": "projects/$P/schemas/Y"}),
        delete(SCHEMA))),
    ("a user", (PUB,), USER, roles("consumer", path=USER), (
        roles("publisher", "consumer", path=USER), put(USER, {"email": "a@b.example"}), delete(USER))),
    ("a member", (PUB,), MEMBER, roles("consumer"), (roles("publisher"), post(MEMBER + ":remove"))),
    ("a project", (), PROJECT, put(PROJECT, {"description": "D"}), (
        put(PROJECT, {"description": "E"}), modify_retention(PROJECT, 60), post(PROJECT + ":modifyQuotas", QUOTAS),
        delete(PROJECT))),
    ("an issuer", (post(ISSUERS, ISSUER),), ISSUERS, put(ISSUERS, {**ISSUER, "audiences": ["b"]}), (
        put(ISSUERS, {**ISSUER, "audiences": ["c"]}), delete(ISSUERS))),
]  # fmt: skip
"""A read, a change meanwhile, and the writes that are then refused."""


def match_version(ask: Request) -> Request:
    return ask._replace(headers={"If-Match": "$etag"})


STALE = [
    Row("1.6", f"{what} was changed meanwhile: {ask.method} {ask.path} {ask.body!r:.60}", match_version(ask), CHANGED,
        (*given, get(path), meanwhile, Request("GET", "/version")),
        ((get(path), OK), (match_version(ask), None)))
    for what, given, path, meanwhile, refused_asks in CASES
    for ask in refused_asks
]  # fmt: skip

OTHERS = [
    Row("1.6", "any version will do", modify_acl(TOPIC)._replace(headers={"If-Match": "*"}), EMPTY, (A_TOPIC,)),
    Row("1.6", "one of several tags", modify_acl(TOPIC)._replace(headers={"If-Match": '"a", $etag'}), EMPTY,
        (A_TOPIC, get(TOPIC + ":acl"))),
    Row("1.6", "a weak tag is no version", modify_acl(TOPIC)._replace(headers={"If-Match": "W/$etag"}), CHANGED,
        (A_TOPIC, get(TOPIC + ":acl"))),
    Row("1.6", "what is no tag", modify_acl(TOPIC)._replace(headers={"If-Match": "5f1e"}),
        error("IA", 'If-Match should be * or an ETag as it was answered, such as "5f1e"'), (A_TOPIC,)),
    Row("1.6", "of what is gone its own error", match_version(modify_acl(TOPIC)), NO_TOPIC,
        (A_TOPIC, get(TOPIC + ":acl"), delete(TOPIC))),
    Row("1.6", "an access list is no part of a topic's version", match_version(modify_retention(TOPIC, 60)), OK,
        (A_TOPIC, PUB, get(TOPIC), modify_acl(TOPIC, "pub"))),
    Row("1.6", "an endpoint whose subscription was changed meanwhile is not verified", match_version(post(VERIFY)),
        CHANGED, (A_TOPIC, create(GOOD), get(SUBSCRIPTION), deadline(30)), ((get(SUBSCRIPTION),
        config(verified=False)),), served="push"),
]  # fmt: skip

LISTS = [
    Row("ours lists", "users are added and removed, others stay", post(TOPIC + ":changeAcl", {"add": ["$P-con",
        "$P-pub"], "remove": ["$P-two", "nobody"]}), Answer({"authorized_users": ["$P-pub", "$P-con"]}), (A_TOPIC, PUB,
        CON, member("two", "publisher"), modify_acl(TOPIC, "two", "pub"))),
    Row("ours lists", "who is both added and removed is on it", post(TOPIC + ":changeAcl", {"add": ["$P-pub"],
        "remove": ["$P-pub"]}), Answer({"authorized_users": ["$P-pub"]}), (A_TOPIC, PUB)),
    Row("ours lists", "whose membership ended stays", change_acl(TOPIC, "con"), Answer({"authorized_users": ["$P-pub",
        "$P-con"]}), (A_TOPIC, PUB, CON, modify_acl(TOPIC, "pub"), post(MEMBER + ":remove"))),
    *(
        Row("ours lists", f"{resource.rsplit('/', 1)[1]} {says}", post(resource + ":changeAcl", body), answer, BOTH)
        for resource, kind in ((TOPIC, "Topic"), (SUBSCRIPTION, "Subscription"))
        for says, body, answer in (
            ("one of the lists is required", {}, error("IA", f"Invalid {kind} ACL Arguments")),
            ("parse error", {"add": "pub"}, error("IA", f"Invalid {kind} ACL Arguments")),
            ("who is no member", {"add": ["none"]}, error("NF", "User(s): none do not exist"))
        )
    ),
    Row("ours lists", "of an unknown topic", change_acl(TOPIC), NO_TOPIC),
    Row("ours lists", "of an unknown subscription", change_acl(SUBSCRIPTION), NO_SUBSCRIPTION),
]  # fmt: skip

NEW_TOKEN = post(MEMBER + ":refreshToken", by="adm", remember="pub")
ELSEWHERE = error("FO", "The user has roles elsewhere: a service_admin can give it a new token")
TOKENS = [
    Row("ours lists", "a project_admin gives a member a new token", NEW_TOKEN, Answer(Has(token=TOKEN)), (PUB, ADM),
        ((get(PROJECT, by="pub"), FORBIDDEN),)),
    Row("ours lists", "not one who is somewhere else", NEW_TOKEN, ELSEWHERE,
        (ADM, post("/projects/$P-x", {}), PUB, post("/projects/$P-x/members/$P-pub:add", {"roles": []}))),
    Row("ours lists", "but a service_admin does", NEW_TOKEN._replace(by="admin"), Answer(Has(token=TOKEN)),
        (PUB, ADM, put(USER, {"service_roles": ["metrics_viewer"]}))),
    Row("ours lists", "nor a user who is no member", NEW_TOKEN, NO_USER, (ADM, user("pub"))),
]  # fmt: skip

ROWS = join_rows(STALE, OTHERS, LISTS, TOKENS)
