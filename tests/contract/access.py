"""Sections 3 and 4: tokens, roles, access lists, views, pages; and rows of 17.3 about them."""

from tests.contract.rows import *

CONSUMING = (*BOTH, CON, publish())

TOKENS = [
    Row("3.1, clients R2", "the token is read from the header, in any letter case",
        get(PROJECT, by="nobody", headers={"X-API-Key": "$token_pub"}), FORBIDDEN, (PUB,)),
    Row("3.1, clients R2", "or from the query", get(PROJECT + "?key=$token_pub", by="nobody"), FORBIDDEN, (PUB,)),
    Row("3.1, clients R2", "of both, the header counts", get(PROJECT + "?key=0", by="admin"), OK),
    Row("3.1", "an empty header leaves the query",
        get(PROJECT + "?key=$token_pub", by="nobody", headers={"x-api-key": ""}), FORBIDDEN, (PUB,)),
    Row("3.1", "an empty query is no token", get(PROJECT + "?key=", by="nobody"), UNAUTHORIZED),
    Row("3.1", "the setting may leave only the header", get(PROJECT + "?key=$token_pub", by="nobody"), UNAUTHORIZED,
        (PUB,), served="header only"),
    Row("3.2", "what the service token makes has no creator", post("/users/$P-x", {}, by="service"),
        Answer(Has(created_by=None, token=TOKEN))),
    Row("3.2", "it sees no details of the status", get("/status?details=true", by="service"), UNAUTHORIZED),
    Row("3.2", "it sees no release", get("/version", by="service"), Answer(Has(release=None))),
    Row("3.3", "one matching role is enough", get(TOPICS, by="both"), OK, (member("both", "consumer", "publisher"),)),
    Row("3.3", "unknown role names are refused", post(MEMBERS + "/$P-x", {"projects": [{"project": "$P",
        "roles": ["king"]}]}), error("IA", "invalid role: king")),
    Row("3.4", "every role name is valid from the start", user("all", "service_admin", "admin_viewer", "metrics_viewer",
        "push_worker", "argo_api_authn", "register_admin", "project_admin", "publisher", "consumer"), OK),
    Row("3.4, 17.3 U9", "a role named _admin_ is none", user("x", "_admin_"), error("IA", "invalid role: _admin_")),
]  # fmt: skip

ROLES_FILE = [
    Row("3.4", "a roles file opens an action", put(TOPIC, by="pub"), OK, (PUB,), served="with a roles file"),
    Row("3.4", "and closes it to those it does not name", put(TOPIC, by="adm"), FORBIDDEN,
        (member("adm", "project_admin"),), served="with a roles file"),
    Row("3.3", "but never to the service token", put(TOPIC, by="service"), OK, served="with a roles file"),
    Row("3.4", "what it does not name stays", delete(TOPIC, by="pub"), FORBIDDEN, (A_TOPIC._replace(by="service"), PUB),
        served="with a roles file"),
    Row("3.3", "a role that is only in the file may be given", user("aud", "auditor"),
        Answer(Has(service_roles=["auditor"])), served="with a roles file"),
    Row("3.3", "and not without the file", user("aud", "auditor"), error("IA", "invalid role: auditor")),
    Row("3.3", "nor in a project", post(MEMBERS + "/$P-x:add", {"roles": ["auditor"]}),
        error("IA", "invalid role: auditor"), (user("x"),), served="with a roles file"),
    Row("3.6, 5.2", "who lists users without being service_admin sees them reduced",
        get("/users?pageSize=1&details=true", by="aud"),
        Answer(Has(users=[Has(name="$P-x", token=None, created_by=None, service_roles=[], projects=None)])),
        (user("aud", "auditor"), user("x", "admin_viewer", projects=[{"project": "$P"}])), served="with a roles file"),
]  # fmt: skip

LISTS = [
    Row("3.5", "a publisher must be on the topic's list", publish(by="pub"), FORBIDDEN, (A_TOPIC, PUB)),
    Row("3.5", "and may then publish", publish(by="pub"), Answer({"messageIds": ["0"]}),
        (A_TOPIC, PUB, modify_acl(TOPIC, "pub"))),
    Row("3.5", "and no longer when taken off", publish(by="pub"), FORBIDDEN,
        (A_TOPIC, PUB, modify_acl(TOPIC, "pub"), modify_acl(TOPIC))),
    Row("3.5", "a consumer must be on the subscription's list", pull(by="con"), FORBIDDEN, CONSUMING),
    Row("3.5", "and may then pull", pull(by="con"), batch_with_ids(0), (*CONSUMING, modify_acl(SUBSCRIPTION, "con"))),
    Row("3.5", "a project admin who is a publisher need not be listed", publish(by="adm"), OK,
        (A_TOPIC, member("adm", "project_admin", "publisher"))),
    Row("3.5", "a push worker need not be listed", pull(by="pw"), batch_with_ids(0),
        (*BOTH, publish(), user("pw", "push_worker"))),
    Row("3.5", "the service token need not be listed", pull(by="service"), batch_with_ids(0), (*BOTH, publish())),
    Row("3.5", "the setting may switch lists off", publish(by="pub"), Answer({"messageIds": ["0"]}), (A_TOPIC, PUB),
        served="without access lists"),
    Row("17.2 A5", "acknowledge needs the list", ack(0, by="con"), FORBIDDEN, (*CONSUMING, pull())),
    Row("17.2 A5", "offsets needs the list", get(SUBSCRIPTION + ":offsets", by="con"), FORBIDDEN, CONSUMING),
    Row("17.2 A5", "modifyOffset needs the list", post(SUBSCRIPTION + ":modifyOffset", {"offset": 1}, by="con"),
        FORBIDDEN, CONSUMING, ((ASK_OFFSETS, offsets(0, 0, 1)),)),
    Row("17.2 A5", "timeToOffset: the list comes before the time", get(SUBSCRIPTION + ":timeToOffset?time=x", by="con"),
        FORBIDDEN, CONSUMING),
    Row("17.2 A5", "modifyAckDeadline needs the list",
        post(SUBSCRIPTION + ":modifyAckDeadline", {"ackDeadlineSeconds": 600}, by="con"), FORBIDDEN, CONSUMING,
        ((get(SUBSCRIPTION), Answer(Has(ackDeadlineSeconds=10))),)),
    Row("17.2 A5", "with the list all five are open", post(SUBSCRIPTION + ":modifyOffset", {"offset": 1}, by="con"),
        EMPTY, (*CONSUMING, modify_acl(SUBSCRIPTION, "con")),
        ((get(SUBSCRIPTION + ":offsets", by="con"), offsets(0, 1, 1)),
        (get(SUBSCRIPTION + ":timeToOffset?time=2020-01-01T00:00:00.000Z", by="con"), Answer({"offset": 0})),
        (post(SUBSCRIPTION + ":modifyAckDeadline", {}, by="con"), EMPTY))),
    Row("3.5", "a publisher lists its topics only", get(TOPICS, by="pub"),
        Answer({"topics": [Has(name="/projects/$P/topics/T")], "nextPageToken": "", "totalSize": 1}),
        (A_TOPIC, put(TOPICS + "/other"), PUB, modify_acl(TOPIC, "pub"))),
    Row("3.5", "also with lists switched off", get(TOPICS, by="pub"),
        Answer({"topics": [], "nextPageToken": "", "totalSize": 0}), (A_TOPIC, PUB), served="without access lists"),
    Row("3.5", "a consumer lists its subscriptions only", get(SUBSCRIPTIONS, by="con"),
        Answer({"subscriptions": [], "nextPageToken": "", "totalSize": 0}), CONSUMING),
    Row("3.5", "who is also a project admin lists all", get(TOPICS, by="adm"), Answer(Has(totalSize=1)),
        (A_TOPIC, member("adm", "project_admin", "publisher"))),
]  # fmt: skip

VIEWS = [
    Row("3.6", "a service admin sees tokens and all projects of a member", get(MEMBERS + "/$P-pub"),
        Answer(Has(token="$token_pub", created_by="admin", service_roles=[])), (PUB,)),
    Row("3.6, 17.3 U8", "a project admin sees neither token nor creator nor service roles", get(MEMBERS + "/$P-sa",
        by="adm"), Answer(Has(token=None, created_by=None, service_roles=[], projects=[{"project": "$P",
        "roles": ["publisher"], "topics": [], "subscriptions": []}])), (member("adm", "project_admin"), user("sa",
        "service_admin"), post(MEMBERS + "/$P-sa:add", {"roles": ["publisher"]}))),
    Row("3.6", "nor the entries of other projects", get(MEMBERS + "/$P-pub", by="adm"),
        Answer(Has(projects=[{"project": "$P", "roles": ["publisher"], "topics": [], "subscriptions": []}])),
        (member("adm", "project_admin"), PUB, post("/projects/$P-2", {}),
        post("/projects/$P-2/members/$P-pub:add", {}))),
    Row("17.3 U3", "a project admin cannot make a service admin",
        post(MEMBERS + "/$P-x", {"projects": [{"project": "$P", "roles": ["service_admin"]}]}, by="adm"),
        error("IA", "invalid role: service_admin"), (member("adm", "project_admin"),)),
    Row("17.3 U3", "nor by :add", post(MEMBERS + "/$P-pub:add", {"roles": ["push_worker"]}, by="adm"),
        error("IA", "invalid role: push_worker"), (member("adm", "project_admin"), user("pub"))),
    Row("17.3 U3", "nor can anybody through a user's projects", post("/users/$P-x", {"projects": [{"project": "$P",
        "roles": ["service_admin"]}]}), error("IA", "invalid role: service_admin")),
]  # fmt: skip

THREE = (put(TOPICS + "/one"), put(TOPICS + "/two"), put(TOPICS + "/three"))


def topics(*names: str, more: object, total: int = 3) -> Answer:
    shown = [Has(name=f"/projects/$P/topics/{name}") for name in names]
    return Answer({"topics": shown, "nextPageToken": more, "totalSize": total})


PAGES = [
    Row("4, clients A5", "an empty list is a list", get(TOPICS), topics(more="", total=0)),
    Row("4", "newest first, everything without a size", get(TOPICS), topics("three", "two", "one", more=""), THREE),
    Row("4", "a page, and the next", get(TOPICS + "?pageSize=2"), topics("three", "two", more=Like(".+")), THREE,
        ((get(TOPICS + "?pageSize=2&pageToken=$next"), topics("one", more="")),)),
    Row("4", "a page that ends with the list is the last", get(TOPICS + "?pageSize=3"),
        topics("three", "two", "one", more=""), THREE),
    Row("4", "what is made in between does not shift the next page", get(TOPICS + "?pageSize=1&pageToken=$next"),
        topics("two", more=Like(".+"), total=4), (*THREE, get(TOPICS + "?pageSize=1"), put(TOPICS + "/four"))),
    Row("4", "a token without a size gives the rest", get(TOPICS + "?pageToken=$next"), topics("two", "one", more=""),
        (*THREE, get(TOPICS + "?pageSize=1"))),
    Row("4, clients R10", "a size of 0 is everything", get(TOPICS + "?pageSize=0"),
        topics("three", "two", "one", more=""), THREE),
    Row("4", "a negative size is everything", get(TOPICS + "?pageSize=-2"), topics("three", "two", "one", more=""),
        THREE),
    Row("4", "an empty size is everything", get(TOPICS + "?pageSize=&pageToken="),
        topics("three", "two", "one", more=""), THREE),
    Row("4", "a size may have a sign", get(TOPICS + "?pageSize=%2B3"), topics("three", "two", "one", more=""), THREE),
    Row("4", "a size may have any number of digits", get(TOPICS + f"?pageSize={'9' * 5000}"),
        topics("three", "two", "one", more=""), THREE),
    Row("4", "also with zeros before it", get(TOPICS + f"?pageSize={'0' * 5000}3"),
        topics("three", "two", "one", more=""), THREE),
    Row("4", "and when it is negative", get(TOPICS + f"?pageSize=-{'9' * 30}"),
        topics("three", "two", "one", more=""), THREE),
    Row("4", "a size that is no integer", get(TOPICS + "?pageSize=1.0"), error("IA", "Invalid page size")),
    Row("4", "a size comes before the token", get(TOPICS + "?pageSize=x&pageToken=x"),
        error("IA", "Invalid page size")),
    Row("4", "a token that is no base64", get(TOPICS + "?pageToken=%25"), error("IA", "Invalid page token")),
    Row("4", "base64 that is no token", get(TOPICS + "?pageToken=aGVsbG8="), error("IA", "Invalid page token")),
    Row("4", "the subscriptions are pages too", get(SUBSCRIPTIONS + "?pageSize=x"), error("IA", "Invalid page size")),
    Row("4", "and so are their tokens", get(SUBSCRIPTIONS + "?pageToken=%25"), error("IA", "Invalid page token")),
    Row("4", "so are the members", get(MEMBERS + "?pageToken=%25"), error("IA", "Invalid page token")),
    Row("4, clients R10", "nextPageToken is not the name and is ignored",
        get("/users?details=True&pageSize=0&nextPageToken="), Answer(Has(nextPageToken=""))),
    Row("clients R10", "a query may begin with ?&", get(TOPICS + "?&pageSize=3"),
        topics("three", "two", "one", more=""), THREE),
]  # fmt: skip

ROWS = [*TOKENS, *ROLES_FILE, *LISTS, *VIEWS, *PAGES]
