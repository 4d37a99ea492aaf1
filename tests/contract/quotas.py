"""Quotas of a project: shown, changed, and answered 429 beyond them; ours."""

from tests.contract.rows import *
from tests.contract.schemas import A_SCHEMA, NAME, PERSON

BAD_BODY = error("IA", "Invalid Quota Arguments")
ALL = "storedBytes, publishBytesPerSecond, requestsPerSecond, topics, subscriptions, schemas, schemaBytes, members"
NO_QUOTA = "There is no quota '{}': there are " + ALL + ", connections, waitingPulls, streams"
BAD_LIMIT = error("IA", "The quota topics is a whole number from 0 to 9007199254740992")
SHOW = get(PROJECT + ":quotas")


def limit(_by: str = "admin", **quotas: object) -> Ask:
    return post(PROJECT + ":modifyQuotas", {"quotas": quotas}, _by)


def beyond(quota: str, number: int) -> Answer:
    return refused(429, "RESOURCE_EXHAUSTED", f"Quota {quota} of the project is exceeded: its limit is {number}")


def shown(*quotas: tuple[str, int, int, int | None]) -> Answer:
    return Answer({"quotas": [
        {key: value for key, value in zip(("name", "limit", "default", "used"), each, strict=True) if value is not None}
        for each in quotas
    ]})  # fmt: skip


RATES = (("publishBytesPerSecond", 0, 0, None), ("requestsPerSecond", 0, 0, None))
LASTING = (("connections", 0, 0, 1), ("waitingPulls", 0, 0, 0), ("streams", 0, 0, 0))
ANOTHER = put(TOPIC + "2")
SUBSCRIBED = put(SUBSCRIPTION + "2", {"topic": "projects/$P/topics/T"})
ROWS = [
    Row("ours quotas", "the defaults, and what is used", SHOW, shown(("storedBytes", 0, 0, 0), *RATES, ("topics",
        10_000, 10_000, 1), ("subscriptions", 10_000, 10_000, 1), ("schemas", 1_000, 1_000, 1), ("schemaBytes", 2**26,
        2**26, 283), ("members", 10_000, 10_000, 1), *LASTING), (*BOTH, A_SCHEMA, CON)),
    Row("ours quotas", "a value of the project's own holds instead", limit(topics=1, schemas=0, members=7),
        shown(("storedBytes", 0, 0, 0), *RATES, ("topics", 1, 10_000, 0), ("subscriptions", 10_000, 10_000, 0),
        ("schemas", 0, 1_000, 0), ("schemaBytes", 2**26, 2**26, 0), ("members", 7, 10_000, 0), *LASTING), (),
        ((get(PROJECT), Answer(Has(quotas={"topics": 1, "schemas": 0, "members": 7}))), (limit(topics=None,
        schemas=None, members=None), Answer(Has())), (get(PROJECT), Answer(Has(quotas=None))))),
    Row("ours quotas", "no more topics", ANOTHER, beyond("topics", 1), (A_TOPIC, limit(topics=1)),
        ((get(TOPIC + "2"), NO_TOPIC), (A_TOPIC, error("AE", "Topic already exists")), (delete(TOPIC), Answer(b"")),
         (ANOTHER, Answer(Has())))),
    Row("ours quotas", "no more subscriptions", SUBSCRIBED, beyond("subscriptions", 1), (*BOTH, limit(subscriptions=1)),
        ((limit(subscriptions=2), Answer(Has())), (SUBSCRIBED, Answer(Has())))),
    Row("ours quotas", "no more schemas", post(SCHEMA + "2", {"type": "json", "schema": PERSON}), beyond("schemas", 1),
        (A_SCHEMA, limit(schemas=1))),
    Row("ours quotas", "no larger schemas", A_SCHEMA, beyond("schemaBytes", 282), (limit(schemaBytes=282),),
        ((limit(schemaBytes=283), Answer(Has())), (A_SCHEMA, Answer(Has(name=NAME))))),
    Row("ours quotas", "nor more revisions, while a new name is no more bytes",
        put(SCHEMA, {"schema": {"type": "object"}}), beyond("schemaBytes", 284), (A_SCHEMA, limit(schemaBytes=284)),
        ((put(SCHEMA, {"name": NAME + "2"}), Answer(Has())),)),
    Row("ours quotas", "no more members", member("pub", "publisher"), beyond("members", 1), (CON, limit(members=1)),
        ((get("/users/$P-pub"), error("NF", "User doesn't exist")),)),
    Row("ours quotas", "nor by adding one", post(MEMBERS + "/$P-u:add", {}), beyond("members", 1),
        (CON, user("u"), limit(members=1))),
    Row("ours quotas", "no more bytes than its own limit", publish(), beyond("storedBytes", 60),
        (*BOTH, limit(storedBytes=60)), ((pull(), received()), (limit(storedBytes=None), OK), (publish(), OK))),
    Row("ours quotas", "no more bytes a second", publish(), beyond("publishBytesPerSecond", 10),
        (*BOTH, limit(publishBytesPerSecond=10), publish()), ((pull(), received(0)),
         (limit(publishBytesPerSecond=0), OK), (publish(), OK))),
    Row("ours quotas", "no more requests a second", get(TOPIC), beyond("requestsPerSecond", 1),
        (A_TOPIC, limit(requestsPerSecond=1), get(TOPIC))),
    Row("ours quotas", "a limit below what there is takes nothing away", SHOW, Answer(Has()),
        (*BOTH, ANOTHER, limit(topics=1)), ((get(TOPIC + "2"), Answer(Has())),)),
    Row("ours quotas", "one that does not exist", limit(pages=1), error("IA", NO_QUOTA.format("pages")), (),
        ((get(PROJECT), Answer(Has(quotas=None))),)),
    *(Row("ours quotas", f"{number} is no limit", limit(topics=number), BAD_LIMIT) for number in (-1, 2**53 + 1)),
    *(Row("ours quotas", f"{body!r} is no body", post(PROJECT + ":modifyQuotas", body), BAD_BODY)
      for body in (NO_BODY, {}, {"quotas": {}}, {"quotas": {"topics": "5"}}, {"quotas": {"topics": 1.5}}, [])),
    Row("ours quotas", "a project_admin sees them and changes none", limit("adm", topics=5), FORBIDDEN,
        (member("adm", "project_admin"),), ((get(PROJECT + ":quotas", "adm"), Answer(Has())),)),
    Row("ours quotas", "a consumer does not see them", get(PROJECT + ":quotas", "con"), FORBIDDEN, (CON,)),
]  # fmt: skip
