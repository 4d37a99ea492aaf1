"""What a schema does to a topic (contract 8, 12.2, 15.1); and what is ours: attributes and dry runs."""

import base64
import json
from typing import Any

from tests.contract.rows import *
from tests.contract.schemas import *

ATTACHED = {"schema": NAME}
RULES = {"required": ["site"], "values": {"type": ["raw", "clean"]}, "patterns": {"site": "^[A-Z]+$"}, "closed": True}
GOOD, BAD = base64.b64encode(b'{"name":"ann"}').decode(), base64.b64encode(b"{}").decode()
WITH_RULES = post(SCHEMA, {"type": "json", "schema": PERSON, "attributes": RULES})
RULES_ALONE = post(SCHEMA, {"type": "json", "attributes": RULES})
ATTACH = post(TOPIC + ":attachSchema", ATTACHED)
CHECKED = (A_SCHEMA, A_TOPIC, ATTACH)


def data(document: object) -> dict[str, Any]:
    return {"data": base64.b64encode(json.dumps(document).encode()).decode()}


def send(*messages: dict[str, Any], by: str = "admin") -> Ask:
    return post(TOPIC + ":publish", {"messages": list(messages)}, by)


ON_TOPICS = [
    Row("8", "create with a schema", put(TOPIC, ATTACHED), Answer(Has(name="/projects/$P/topics/T", schema=NAME)),
        (A_SCHEMA,), ((get(TOPIC), Answer(Has(schema=NAME))), (publish(BAD), why(".*name is required")))),
    Row("8", "create: the schema comes before a taken name", put(TOPIC, ATTACHED), NO_SCHEMA, (A_TOPIC,)),
    Row("8", "create: a taken name", put(TOPIC, ATTACHED), error("AE", "Topic already exists"), (A_SCHEMA, A_TOPIC)),
    Row("8", "attach is empty", ATTACH, EMPTY, (A_SCHEMA, A_TOPIC), ((get(TOPIC), Answer(Has(schema=NAME))),)),
    Row("8", "a list shows it", get(TOPICS), Answer(Has(topics=[Has(schema=NAME)])), CHECKED),
    Row("8", "attach: another one takes its place", post(TOPIC + ":attachSchema", {"schema": "projects/$P/schemas/Y"}),
        EMPTY, (*CHECKED, post(SCHEMAS + "/Y", {"type": "json", "schema": {}})),
        ((get(TOPIC), Answer(Has(schema="projects/$P/schemas/Y"))), (publish(BAD), Answer({"messageIds": ["0"]})))),
    Row("8", "attach: an unknown topic, before the body", post(TOPIC + ":attachSchema", b"{"), NO_TOPIC),
    Row("8, 17.4 O8", "attach: no object of texts", post(TOPIC + ":attachSchema", {"schema": 1}), BAD_MAP, (A_TOPIC,)),
    Row("8", "attach: a bad reference", post(TOPIC + ":attachSchema", {"schema": "X"}), BAD_REFERENCE,
        (A_TOPIC, A_SCHEMA)),
    Row("8", "attach: five parts", post(TOPIC + ":attachSchema", {"schema": NAME + "/y"}), BAD_REFERENCE,
        (A_TOPIC, A_SCHEMA)),
    Row("8", "attach: a schema that is not there", ATTACH, NO_SCHEMA, (A_TOPIC,)),
    Row("8, 1.2", "attach: a string map is matched exactly", post(TOPIC + ":attachSchema", {"Schema": NAME}), EMPTY,
        (A_SCHEMA, A_TOPIC), ((get(TOPIC), Answer(Has(schema=None))),)),
    Row("8, 1.2", "attach with an empty body detaches", post(TOPIC + ":attachSchema"), EMPTY, CHECKED,
        ((get(TOPIC), Answer(Has(schema=None))), (publish(BAD), Answer({"messageIds": ["0"]})))),
    Row("8", "attach with an empty object detaches", post(TOPIC + ":attachSchema", {}), EMPTY, CHECKED,
        ((get(TOPIC), Answer(Has(schema=None))),)),
    Row("8", "attach with an empty schema detaches", post(TOPIC + ":attachSchema", {"schema": ""}), EMPTY, CHECKED,
        ((get(TOPIC), Answer(Has(schema=None))),)),
    Row("8", "detach", post(TOPIC + ":detachSchema"), EMPTY, CHECKED,
        ((get(TOPIC), Answer(Has(schema=None))), (publish(BAD), Answer({"messageIds": ["0"]})))),
    Row("8, clients R6", "detach takes any body, also when none is attached", post(TOPIC + ":detachSchema", b'""'),
        EMPTY, (A_TOPIC,)),
    Row("8", "detach: an unknown topic", post(TOPIC + ":detachSchema"), NO_TOPIC),
    Row("15.1", "a renamed schema stays attached under its new name", get(TOPIC),
        Answer(Has(schema="projects/$P/schemas/Y")), (*CHECKED, publish(GOOD), change(name="projects/$P/schemas/Y")),
        ((publish(BAD), why(".*name is required")),)),
    Row("15.1", "a deleted schema is detached", get(TOPIC), Answer(Has(schema=None)), (*CHECKED, delete(SCHEMA)),
        ((publish(BAD), Answer({"messageIds": ["0"]})),)),
    Row("15.1", "a schema made again under the name is not attached", get(TOPIC), Answer(Has(schema=None)),
        (*CHECKED, delete(SCHEMA), A_SCHEMA)),
    Row("15.1, 17.4 O12", "a change is in force for the next publish", publish(BAD), Answer({"messageIds": ["1"]}),
        (*CHECKED, publish(GOOD), change(schema={"type": "object"})), ((publish("MQ=="), why(".*given: integer")),)),
    Row("12.2", "what the schema allows is published", publish(GOOD), Answer({"messageIds": ["0"]}), CHECKED),
    Row("12.2, 15.3", "the first message that fails is named, and nothing is stored",
        send(data({"name": "ann"}), data({"name": "a"}), data({})),
        invalid("Message 1 data is not valid,name: String length must be greater than or equal to 2"), CHECKED,
        ((publish(GOOD), Answer({"messageIds": ["0"]})),)),
    Row("12.2", "a message that is none comes before the schema", send(data({}), {}),
        error("IA", "Invalid Message Arguments: message 1, counted from 0, has neither data nor attributes"), CHECKED),
    Row("15.3, 17.1 M7", "published data that is not base64", publish(GOOD, "msg 1"),
        invalid("Message 1 is not in valid base64 enocding,illegal base64 data at input byte 3"), CHECKED),
    Row("15.3", "so too where other topics take base64 only", publish("msg 1"),
        invalid("Message 0 is not in valid base64 enocding,illegal base64 data at input byte 3"), CHECKED,
        served="strict"),
    Row("15.3", "line breaks within base64 are none of its faults", publish(GOOD[:4] + "\r\n" + GOOD[4:]),
        Answer({"messageIds": ["0"]}), CHECKED),
    Row("15.3", "published data that is no JSON", publish("eA=="), why("Message 0 data is not valid JSON format,.+"),
        CHECKED),
    Row("15.3", "published without data", send({"attributes": {"k": "v"}}),
        invalid("Message 0 data is not valid JSON format,EOF"), CHECKED),
    Row("15.3", "a published avro datum", publish(DATUM, "BGE="), why("Message 1 is not valid\\..+"),
        (AN_AVRO_SCHEMA, A_TOPIC, ATTACH), ((publish(DATUM), Answer({"messageIds": ["0"]})),)),
    Row("12.2", "the schema comes before the size", send({"data": "e30=", "attributes": {"k": "x" * 2000}}),
        why(".*name is required"), CHECKED, served="small"),
]  # fmt: skip

SITE_ONLY = {"attributes": {"site": "ATHENS"}, **data({"name": "ann"})}

ATTRIBUTES = [
    Row("ours attributes", "create with both parts shows both", WITH_RULES, Answer({**SHOWN, "attributes": RULES})),
    Row("ours attributes", "create with attributes alone", RULES_ALONE,
        Answer({**SHOWN, "schema": {}, "attributes": RULES})),
    Row("ours attributes", "attributes alone need the type json", create(type="avro", attributes=RULES),
        invalid("A schema of attributes alone has the type json")),
    Row("ours attributes", "empty attributes are none", create(type="json", attributes={}), BAD_BODY),
    Row("ours attributes", "a field that is none", create(type="json", attributes={"needed": []}),
        why("Schema attributes are not valid: .*needed.*")),
    Row("ours attributes", "a pattern that is none", create(type="json", attributes={"patterns": {"a": "("}}),
        why("Schema attributes are not valid: pattern of a .*")),
    Row("ours attributes", "update adds the part", change(attributes=RULES), Answer({**SHOWN, "attributes": RULES}),
        (A_SCHEMA,)),
    Row("ours attributes", "update leaves it when it says nothing of it", change(schema={"type": "object"}),
        Answer({**SHOWN, "schema": {"type": "object"}, "attributes": RULES}), (WITH_RULES,)),
    Row("ours attributes", "update with an empty part removes it", change(attributes={}), Answer(SHOWN), (WITH_RULES,)),
    Row("ours attributes", "but not the last part", change(attributes={}),
        invalid("A schema without a payload schema needs attributes"), (RULES_ALONE,)),
    Row("ours attributes", "publish: a name that is required", send(SITE_ONLY, {**SITE_ONLY, "attributes": {}}),
        invalid("Message 1 attributes are not valid,site: is required"), (WITH_RULES, A_TOPIC, ATTACH),
        ((send(SITE_ONLY), Answer({"messageIds": ["0"]})),)),
    Row("ours attributes", "publish: several violations",
        send({"attributes": {"type": "odd", "site": "athens", "x": "y"}, "data": GOOD}),
        invalid('Message 0 attributes are not valid.1)type: must be one of the following: "raw", "clean".'
                "2)site: Does not match pattern '^[A-Z]+$'.3)x: is not allowed."), (WITH_RULES, A_TOPIC, ATTACH)),
    Row("ours attributes", "publish: the payload comes first", send({"attributes": {}, "data": BAD}),
        why("Message 0 data is not valid,.*"), (WITH_RULES, A_TOPIC, ATTACH)),
    Row("ours attributes", "publish: attributes alone take any data", send({"attributes": {"site": "A"},
        "data": "eA=="}), Answer({"messageIds": ["0"]}), (RULES_ALONE, A_TOPIC, ATTACH)),
    Row("ours attributes", "validate a message", ask({"attributes": {"site": "a"}, "data": GOOD}),
        invalid("Message 0 attributes are not valid,site: Does not match pattern '^[A-Z]+$'"), (WITH_RULES,),
        ((ask(SITE_ONLY), VALID),)),
    Row("ours attributes", "validate a message without data", ask({"attributes": {"site": "A"}}), VALID,
        (RULES_ALONE,)),
    Row("ours attributes, 15.2", "validate a document alone, as ever", ask({"name": "ann"}), VALID, (WITH_RULES,)),
    Row("ours attributes", "validate: attributes alone need a message", ask({"name": "ann"}), NO_PAYLOAD,
        (RULES_ALONE,)),
    Row("15.2", "without an attributes part, attributes are a document's", ask({"attributes": {"site": "A"}}),
        why(".*Additional property attributes is not allowed.*"), (A_SCHEMA,)),
]  # fmt: skip

FIVE = publish(GOOD, BAD, GOOD, "eA==", GOOD)


def dry_run(**body: object) -> Ask:
    return post(SCHEMA + ":dryRun", {"topic": "projects/$P/topics/T", **body})


DRY_RUNS = [
    Row("ours dryRun", "the newest messages", dry_run(messages=4), Answer({"checked": 4, "refused": 2, "reasons": [
        {"messageId": "1", "reason": "Message 1 data is not valid,(root): name is required"},
        {"messageId": "3", "reason": Like("Message 3 data is not valid JSON format,.+")}]}),
        (A_SCHEMA, A_TOPIC, FIVE), ((get(TOPIC), Answer(Has(schema=None))),)),
    Row("ours dryRun", "of an empty topic", dry_run(), Answer({"checked": 0, "refused": 0, "reasons": []}),
        (A_SCHEMA, A_TOPIC)),
    Row("ours dryRun", "at most twenty reasons", dry_run(), Answer(Has(checked=25, refused=25)),
        (A_SCHEMA, A_TOPIC, publish(*[BAD] * 25))),
    Row("ours dryRun", "an unknown schema first", dry_run(topic=""), NO_SCHEMA),
    Row("ours dryRun", "a bad reference", dry_run(topic="T"), error("IA", "Invalid Topic name"), (A_SCHEMA,)),
    Row("ours dryRun", "an unknown topic", dry_run(), NO_TOPIC, (A_SCHEMA,)),
    Row("ours dryRun", "no number", dry_run(messages="4"), error("IA", "Invalid Dry Run Arguments"), (A_SCHEMA,)),
    Row("ours dryRun", "no messages", dry_run(messages=0), error("IA", "Invalid Dry Run Arguments"), (A_SCHEMA,)),
]  # fmt: skip

ROWS = [*ON_TOPICS, *ATTRIBUTES, *DRY_RUNS]
