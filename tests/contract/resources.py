"""Sections 8 and 9: topics and subscriptions; and rows of 17.2 about them."""

from tests.contract.rows import *

TWO = member("two", "publisher")
ONE_TOPIC = Answer({"name": "/projects/$P/topics/T", "created_on": DATE})
REFERENCE = {"topic": "projects/$P/topics/T"}
NO_PUSH = error("CO", "Push functionality is currently disabled")

TOPIC_ROWS = [
    Row("8, clients R5", "create with an empty body", put(TOPIC), ONE_TOPIC),
    Row("8, clients R5", "create with an empty object", put(TOPIC, {}), ONE_TOPIC),
    Row("8, clients R5", "create with an empty schema", put(TOPIC, {"schema": ""}), ONE_TOPIC),
    Row("8", "create: a body that is no object of texts", put(TOPIC, {"schema": {}}),
        error("BR", "Invalid Request Body")),
    Row("8", "create: a bad schema reference", put(TOPIC, {"schema": "/projects/$P/schemas/X"}),
        error("IA", "wrong schema name declaration")),
    Row("8", "create: a schema of another project", put(TOPIC, {"schema": "projects/other/schemas/X"}),
        error("IA", "wrong schema name declaration"), (post("/projects/$P/schemas/X", {"type": "json", "schema": {}}),),
        ((get(TOPIC), NO_TOPIC),)),
    Row("8", "attachSchema: a schema of another project", post(TOPIC + ":attachSchema",
        {"schema": "projects/other/schemas/X"}), error("IA", "wrong schema name declaration"), (A_TOPIC,
        post("/projects/$P/schemas/X", {"type": "json", "schema": {}})), ((get(TOPIC), ONE_TOPIC),)),
    Row("8, clients R5", "create: an unknown schema, before a taken name",
        put(TOPIC, {"schema": "projects/$P/schemas/X"}), error("NF", "Schema doesn't exist"), (A_TOPIC,)),
    Row("8, clients A11, 17.3 U11", "create: taken", put(TOPIC), error("AE", "Topic already exists"), (A_TOPIC,)),
    Row("8, clients A4", "show", get(TOPIC), ONE_TOPIC, (A_TOPIC,)),
    Row("8, clients A10", "show an unknown one", get(TOPIC), NO_TOPIC),
    Row("8", "list", get(TOPICS), Answer({"topics": [Has(name="/projects/$P/topics/T", schema=None, created_on=DATE)],
        "nextPageToken": "", "totalSize": 1}), (A_TOPIC,)),
    Row("8", "delete", delete(TOPIC), EMPTY, (A_TOPIC,), ((get(TOPIC), NO_TOPIC), (publish(), NO_TOPIC))),
    Row("8", "delete an unknown one", delete(TOPIC), NO_TOPIC),
    Row("8", "its subscriptions, oldest first", get(TOPIC + "/subscriptions"),
        Answer({"subscriptions": ["/projects/$P/subscriptions/S", "/projects/$P/subscriptions/R"]}), (*BOTH,
        put(SUBSCRIPTIONS + "/R", REFERENCE), put(TOPICS + "/O"),
        put(SUBSCRIPTIONS + "/O", {"topic": "projects/$P/topics/O"}))),
    Row("8, clients A5", "none is a list too", get(TOPIC + "/subscriptions"), Answer({"subscriptions": []}),
        (A_TOPIC,)),
    Row("8", "its subscriptions, unknown topic", get(TOPIC + "/subscriptions"), NO_TOPIC),
    Row("8, clients A23", "the access list of a fresh topic", get(TOPIC + ":acl"), Answer({"authorized_users": []}),
        (A_TOPIC,)),
    Row("8", "the access list in stored order", get(TOPIC + ":acl"), Answer({"authorized_users": ["$P-two", "$P-pub"]}),
        (A_TOPIC, PUB, TWO, modify_acl(TOPIC, "two", "pub"))),
    Row("8", "the access list of an unknown topic", get(TOPIC + ":acl"), NO_TOPIC),
    Row("8", "modifyAcl is empty and replaces", modify_acl(TOPIC, "two"), EMPTY, (A_TOPIC, PUB, TWO, modify_acl(TOPIC,
        "pub")), ((get(TOPIC + ":acl"), Answer({"authorized_users": ["$P-two"]})),)),
    Row("8", "modifyAcl may empty the list", modify_acl(TOPIC), EMPTY, (A_TOPIC, PUB, modify_acl(TOPIC, "pub")),
        ((get(TOPIC + ":acl"), Answer({"authorized_users": []})),)),
    Row("8", "modifyAcl: the field is required", post(TOPIC + ":modifyAcl", {}),
        error("IA", "Invalid Topic ACL Arguments"), (A_TOPIC,)),
    Row("8", "modifyAcl: parse error", post(TOPIC + ":modifyAcl", {"authorized_users": "pub"}),
        error("IA", "Invalid Topic ACL Arguments")),
    Row("8", "modifyAcl: all who are no members are named, before the topic", modify_acl(TOPIC, "none", "pub", "other"),
        error("NF", "User(s): $P-none, $P-other do not exist"), (PUB, user("other"))),
    Row("8, 17.3 U10", "modifyAcl of an unknown topic", modify_acl(TOPIC), NO_TOPIC),
    Row("8, clients A12", "subscriptions outlive their topic", get(SUBSCRIPTION),
        Answer(Has(topic="/projects/$P/topics/T")), (*BOTH, delete(TOPIC)), ((delete(SUBSCRIPTION), EMPTY),)),
    Row("8, 10.3", "and pull says so", pull(), error("CO", "Subscription's topic doesn't exist"),
        (*BOTH, delete(TOPIC))),
    Row("17.2 A9", "re-creating the topic revives them, from its beginning", pull(), batch_with_ids(0),
        (*BOTH, publish("YQ==", "YQ=="), pull(), ack(1), delete(TOPIC), A_TOPIC, publish())),
    Row("17.2 A9", "also by offsets", ASK_OFFSETS, offsets(0, 0, 0),
        (*BOTH, publish(), pull(), ack(0), delete(TOPIC), A_TOPIC)),
    Row("8, 17.3 U13", "a re-created topic counts from 0", publish(), Answer({"messageIds": ["0"]}),
        (A_TOPIC, publish(), delete(TOPIC), A_TOPIC)),
]  # fmt: skip

PULL_CONFIG = {
    "type": "", "pushEndpoint": "", "maxMessages": 0, "authorizationHeader": {}, "retryPolicy": {},
    "verificationHash": "", "verified": False, "mattermostUrl": "", "mattermostUsername": "", "mattermostChannel": "",
    "base64Decode": False,
}  # fmt: skip
WHOLE = Answer(
    {"name": "/projects/$P/subscriptions/S", "topic": "/projects/$P/topics/T", "pushConfig": PULL_CONFIG,
     "ackDeadlineSeconds": 10, "createdOn": DATE}
)  # fmt: skip
BAD_DEADLINE = error("IA", "Invalid ackDeadlineSeconds(needs value between 0 and 600) Arguments")
DEADLINE = SUBSCRIPTION + ":modifyAckDeadline"
BAD_TOPIC = error("IA", "Invalid Topic name")


def create(**body: object) -> Request:
    return put(SUBSCRIPTION, {**REFERENCE, **body})


SUBSCRIPTION_ROWS = [
    Row("9.1, clients A8, clients A9, 17.2 A14", "the whole object", get(SUBSCRIPTION), WHOLE, BOTH),
    Row("9.2, clients A5", "list", get(SUBSCRIPTIONS),
        Answer({"subscriptions": [WHOLE.body], "nextPageToken": "", "totalSize": 1}), BOTH),
    Row("9.2, clients A10", "show an unknown one", get(SUBSCRIPTION), NO_SUBSCRIPTION),
    Row("9.2", "delete", delete(SUBSCRIPTION), EMPTY, BOTH,
        ((get(SUBSCRIPTION), NO_SUBSCRIPTION), (pull(), NO_SUBSCRIPTION))),
    Row("9.2", "delete an unknown one", delete(SUBSCRIPTION), NO_SUBSCRIPTION),
    Row("9.2", "deleting drops the place: a new one of the name starts at the end", A_SUBSCRIPTION, WHOLE,
        (*BOTH, publish(), delete(SUBSCRIPTION)), ((ASK_OFFSETS, offsets(0, 1, 1)),)),
    Row("9.2, clients A23", "the access list of a fresh one", get(SUBSCRIPTION + ":acl"),
        Answer({"authorized_users": []}), BOTH),
    Row("9.2", "the access list of an unknown one", get(SUBSCRIPTION + ":acl"), NO_SUBSCRIPTION),
    Row("9.2", "modifyAcl", modify_acl(SUBSCRIPTION, "pub"), EMPTY, (*BOTH, PUB),
        ((get(SUBSCRIPTION + ":acl"), Answer({"authorized_users": ["$P-pub"]})),)),
    Row("9.2", "modifyAcl: the field is required", post(SUBSCRIPTION + ":modifyAcl", {}),
        error("IA", "Invalid Subscription ACL Arguments")),
    Row("9.2", "modifyAcl: who is no member, before the subscription", modify_acl(SUBSCRIPTION, "none"),
        error("NF", "User(s): $P-none do not exist")),
    Row("9.2, 17.3 U10", "modifyAcl of an unknown one", modify_acl(SUBSCRIPTION), NO_SUBSCRIPTION),
    Row("9.2", "modifyAckDeadline", post(DEADLINE, {"ackDeadlineSeconds": 600}), EMPTY, BOTH,
        ((get(SUBSCRIPTION), Answer(Has(ackDeadlineSeconds=600))),)),
    Row("9.2", "absent is 0", post(DEADLINE, {}), EMPTY, BOTH,
        ((get(SUBSCRIPTION), Answer(Has(ackDeadlineSeconds=0))),)),
    Row("9.2", "over 600", post(DEADLINE, {"ackDeadlineSeconds": 601}), BAD_DEADLINE, BOTH),
    Row("9.2", "negative, before the subscription", post(DEADLINE, {"ackDeadlineSeconds": -1}), BAD_DEADLINE),
    Row("9.2", "beyond any integer", post(DEADLINE, {"ackDeadlineSeconds": 10**30}), BAD_DEADLINE, BOTH),
    Row("9.2", "modifyAckDeadline of an unknown one", post(DEADLINE, {"ackDeadlineSeconds": 1}), NO_SUBSCRIPTION),
    Row("9.3, clients R7", "create with only a topic", create(), WHOLE, (A_TOPIC,)),
    Row("9.3, clients R7", "create with a deadline", create(ackDeadlineSeconds=300),
        Answer(Has(ackDeadlineSeconds=300)), (A_TOPIC,)),
    Row("9.3, clients R7", "create with an empty push configuration", create(pushConfig={}), WHOLE, (A_TOPIC,)),
    Row("9.3", "null is none too", create(pushConfig=None), WHOLE, (A_TOPIC,)),
    Row("9.3", "only empty values are none too", create(pushConfig={"pushEndpoint": "", "maxMessages": 0,
        "retryPolicy": {"type": "", "period": 0}, "verified": False}), WHOLE, (A_TOPIC,)),
    Row("9.3", "a deadline of 0 is the default", create(ackDeadlineSeconds=0), WHOLE, (A_TOPIC,)),
    Row("9.3", "name, createdOn and pushStatus are ignored", create(name="x", createdOn="y", pushStatus="z"), WHOLE,
        (A_TOPIC,)),
    Row("9.3, 17.2 A8", "a negative deadline", create(ackDeadlineSeconds=-1), BAD_DEADLINE, (A_TOPIC,),
        ((get(SUBSCRIPTION), NO_SUBSCRIPTION),)),
    Row("9.3, 17.2 A8", "a deadline over 600", create(ackDeadlineSeconds=601), BAD_DEADLINE, (A_TOPIC,)),
    Row("9.3", "parse error first", create(topic=1), error("IA", "Invalid Subscription Arguments"), BOTH),
    Row("9.3", "no topic", put(SUBSCRIPTION, {}), BAD_TOPIC),
    Row("9.3, 17.2 A7", "a topic of another project", create(topic="projects/other/topics/T"), BAD_TOPIC, (A_TOPIC,)),
    Row("9.3, 17.2 A7", "only the first part right", create(topic="projects/$P/topic/T"), BAD_TOPIC, (A_TOPIC,)),
    Row("9.3, 17.2 A7", "only the third part right", create(topic="project/$P/topics/T"), BAD_TOPIC, (A_TOPIC,)),
    Row("9.3, 17.2 A7", "five parts", create(topic="projects/$P/topics/T/x"), BAD_TOPIC, (A_TOPIC,)),
    Row("9.3", "the reference comes before the name", create(topic="T"), BAD_TOPIC, BOTH),
    Row("9.3", "an unknown topic, before the name", create(topic="projects/$P/topics/none"), NO_TOPIC, BOTH),
    Row("9.3, 13.2", "push is disabled, before the name",
        create(pushConfig={"pushEndpoint": "https://receiver.example/in"}), NO_PUSH, BOTH),
    Row("9.3", "one filled field anywhere asks for push", create(pushConfig={"retryPolicy": {"type": "linear"}}),
        NO_PUSH, (A_TOPIC,)),
    Row("9.3, clients A11, 17.3 U11", "taken, last", create(), error("AE", "Subscription already exists"), BOTH),
    Row("9.3", "it starts at the present end", pull(), batch_with_ids(2),
        (A_TOPIC, publish("YQ==", "YQ=="), A_SUBSCRIPTION, publish())),
    Row("8, 9.2", "a rename of the project renames what it holds", get("/projects/$P-2/subscriptions/S"),
        Answer(Has(name="/projects/$P-2/subscriptions/S", topic="/projects/$P-2/topics/T")),
        (*BOTH, put(PROJECT, {"name": "$P-2"}))),
]  # fmt: skip

ROWS = [*TOPIC_ROWS, *SUBSCRIPTION_ROWS]
