"""clients.md, part A1: the rules that keep every known client working, where no other row holds them already."""

from tests.contract.rows import *

PUBLISH = TOPIC + ":publish"
FORM = {"content-type": "application/json;charset=utf-8"}

ROWS = [
    Row("clients R1", "JSON with a character set", post(PUBLISH, {"messages": [{"data": "aGk="}]}, headers=FORM),
        Answer({"messageIds": ["0"]}), (A_TOPIC,)),
    Row("clients R2", "header and query at once", publish()._replace(path=PUBLISH + "?key=0"), OK, (A_TOPIC,)),
    Row("clients R2", "a worker pulls with the query",
        pull(by="nobody")._replace(path=SUBSCRIPTION + ":pull?key=$token_con"), received(0),
        (*BOTH, member("con", "consumer"), listed(SUBSCRIPTION, "con"), publish())),
    Row("clients R6", "a token is refreshed with an empty object", post("/users/$P-u:refreshToken", {}), OK,
        (user("u"),)),
    Row("clients R6", "a member is removed with an empty object", post(PROJECT + "/members/$P-m:remove", {}),
        Answer({}), (member("m", "consumer"),)),
    Row("clients R10", "odd queries on one resource", get(TOPIC + "?&details=True&nextPageToken="), OK, (A_TOPIC,)),
    Row("clients R12", "the metrics pages double slashes after the version", get("///projects/$P"),
        Answer(b"", 301, {"location": "/v1/projects/$P"})),
    Row("clients R13", "long names, dashes in a row", put(SUBSCRIPTIONS + "/amsprobe-subscription_aB3dE6gH9jK2mN5p",
        {"topic": "projects/$P/topics/SITE_SITE-A_ENDPOINT_1234G0"}), OK,
        (put(TOPICS + "/SITE_SITE-A_ENDPOINT_1234G0"),)),
    Row("clients A3", "the code is a number", get(SUBSCRIPTION), Answer({"error": Has(code=404)}, 404)),
    Row("clients A3", "409 too", put(TOPIC), Answer({"error": Has(code=409)}, 409), (A_TOPIC,)),
    Row("clients A5", "no message ids are a list", post(PUBLISH, {}), Answer({"messageIds": []}), (A_TOPIC,)),
    Row("clients A12", "the probe: topic, then subscription", delete(SUBSCRIPTION), EMPTY, (*BOTH, delete(TOPIC)),
        ((get(SUBSCRIPTION), NO_SUBSCRIPTION),)),
    Row("clients A15", "the probe: 99 in one request, 100 asked for at once", pull(100), received(*range(99)),
        (*BOTH, publish(*["aGk="] * 99))),
    Row("clients A16", "the CI collection: two published, pulled one by one", pull(1), received(1),
        (*BOTH, publish("MA==", "MQ=="), pull(1), ack(0))),
    Row("clients A2", "an unknown path has an envelope with an error object", get("/nothing"),
        refused(404, "NOT_FOUND", "Page not found")),
]  # fmt: skip
