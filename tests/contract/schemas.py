"""Section 15: schemas, and validating messages by them; and rows of section 17 about them."""

import base64
import json
from typing import Any

from tests.contract.rows import *

NO_SCHEMA = error("NF", "Schema doesn't exist")
TAKEN = error("AE", "Schema already exists")
BAD_BODY = error("IA", "Invalid Schema Arguments")
BAD_REFERENCE = error("IA", "wrong schema name declaration")
BAD_TYPE = error("IA", "Schema type can only be 'json', 'avro' or 'protobuf'")
BAD_MAP = error("BR", "Invalid Request Body")
NO_PAYLOAD = error("IA", "Invalid Schema Payload Arguments")
VALID = Answer({"message": "Message validated successfully"})
NAME = "projects/$P/schemas/X"

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"}, "age": {"type": "integer", "minimum": 0},
        "mail": {"type": "string", "format": "email"}, "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "minItems": 1},
    },
    "required": ["name"],
    "additionalProperties": False,
}  # fmt: skip
READING = {
    "type": "record", "name": "Reading",
    "fields": [{"name": "site", "type": "string"}, {"name": "value", "type": "int"}],
}  # fmt: skip
DATUM = base64.b64encode(b"\x04ab\x02").decode()

A_SCHEMA = post(SCHEMA, {"type": "json", "schema": PERSON})
AN_AVRO_SCHEMA = post(SCHEMA, {"type": "avro", "schema": READING})
PROTO = 'syntax = "proto3"; message A { string a = 1; }'
A_PROTO_SCHEMA = post(SCHEMA, {"type": "protobuf", "schema": {"definition": PROTO, "descriptor": "of a client"}})
REVISION = Like("[0-9a-f]{8}")
SHOWN: dict[str, Any] = {"uuid": UUID, "name": NAME, "type": "json", "schema": PERSON}


def bad_schema(text: str) -> Answer:
    return error("IA", text)


def compile_error(text: str) -> Answer:
    """An error with a detail from the compiler: only code and status are compared."""
    return Answer({"error": {"code": 400, "message": Like(text), "status": "INVALID_ARGUMENT"}}, 400)


def create(**body: object) -> Request:
    return post(SCHEMA, body)


def change(**body: object) -> Request:
    return put(SCHEMA, body)


def ask(document: object) -> Request:
    return post(SCHEMA + ":validate", document)


MANAGED = [
    Row("15", "the whole object", get(SCHEMA), Answer(SHOWN), (A_SCHEMA,)),
    Row("15.1", "none is a list too", get(SCHEMAS), Answer({"schemas": []})),
    Row("15.1, 4", "all, oldest first and without pages", get(SCHEMAS + "?pageSize=1"),
        Answer({"schemas": [Has(name="projects/$P/schemas/b"), Has(name="projects/$P/schemas/a")]}),
        (post(SCHEMAS + "/b", {"type": "json", "schema": {}}), post(SCHEMAS + "/a", {"type": "avro",
         "schema": {"type": "int"}}))),
    Row("15.1, ours", "all it has said, the newest first", get(SCHEMA + ":revisions"),
        Answer({"revisions": [{"revision": REVISION, "created_on": Like(r"20.+Z"), "type": "avro",
        "schema": {"type": "int"}, "attributes": {"required": ["site"]}}, {"revision": REVISION,
        "created_on": Like(r"20.+Z"), "type": "json", "schema": PERSON}]}), (A_SCHEMA, change(type="avro",
        schema={"type": "int"}, attributes={"required": ["site"]}))),
    Row("15.1, ours", "revisions of an unknown one", get(SCHEMA + ":revisions"), NO_SCHEMA),
    Row("15.1", "show an unknown one", get(SCHEMA), NO_SCHEMA),
    Row("15.1", "create answers the schema", A_SCHEMA, Answer(SHOWN)),
    Row("15.1", "create: a name in the body is ignored", create(name="projects/$P/schemas/Y", type="json", schema={}),
        Answer(Has(name=NAME, schema={}))),
    Row("15.1", "create: the type is compared without case and stored in small letters",
        create(type="JSON", schema=PERSON), Answer(SHOWN)),
    Row("1.2, 15.1", "create: fields are matched without case", create(TYPE="json", Schema=PERSON), Answer(SHOWN)),
    Row("1.2", "create: the first JSON value is read, and no more", post(SCHEMA,
        b' {"type":"json","schema":{}} nonsense'), Answer(Has(type="json", schema={}))),
    Row("15.1", "create: an empty body", post(SCHEMA), BAD_BODY),
    Row("15.1", "create: no JSON", post(SCHEMA, b"{"), BAD_BODY),
    Row("15.1", "create: no object", post(SCHEMA, []), BAD_BODY),
    Row("15.1", "create: a schema that is no object", create(type="json", schema="{}"), BAD_BODY),
    Row("15.1", "create: a type that is no text", create(type=1, schema={}), BAD_BODY),
    Row("15.1", "create: no schema", create(type="json"), BAD_BODY),
    Row("15.1", "create: a parse error comes before a taken name", post(SCHEMA, b"x"), BAD_BODY, (A_SCHEMA,)),
    Row("15.1, 17.3 U11", "create: taken, before the type", create(type="xml", schema={}), TAKEN, (A_SCHEMA,)),
    Row("15.1", "create: another type", create(type="xml", schema={}), BAD_TYPE, (), ((get(SCHEMA), NO_SCHEMA),)),
    Row("15.1", "create: the type is required", create(schema={}), BAD_TYPE),
    Row("15.1", "create: the type comes before the compiler", create(schema={"type": "unknown"}), BAD_TYPE),
    Row("15.1", "create: a JSON schema that does not compile", create(type="json", schema={"type": "unknown"}),
        compile_error(".+"), (), ((get(SCHEMA), NO_SCHEMA),)),
    Row("15.1", "create: an avro schema that does not compile", create(type="avro", schema={"type": "unknown"}),
        bad_schema('unknown type name: "unknown"'), (), ((get(SCHEMA), NO_SCHEMA),)),
    Row("ours protobuf", "create: a definition that does not compile",
        create(type="protobuf", schema={"definition": "message {}"}),
        bad_schema("schema is not valid: line 1: Expected message name."), (), ((get(SCHEMA), NO_SCHEMA),)),
    Row("ours protobuf", "create: no definition", create(type="protobuf", schema={}),
        compile_error(".*an object with a text.*")),
    Row("ours protobuf", "create: it is shown with what the service made of it", A_PROTO_SCHEMA, Answer({
        "uuid": UUID, "name": NAME, "type": "protobuf",
        "schema": {"definition": PROTO, "descriptor": Like("[A-Za-z0-9+/]{30,}=*")}}),
        (), ((change(attributes={"required": ["a"]}), Answer(Has(type="protobuf"))),)),
    Row("17.4 O12", "create: a reference to another place is refused, and not followed",
        create(type="json", schema={"$ref": "https://schemas.example/person.json"}),
        compile_error(".*schemas\\.example.*")),
    Row("15.1", "update of an unknown one, before the body", put(SCHEMA, b"x"), NO_SCHEMA),
    Row("15.1", "update: no JSON", put(SCHEMA, b"x"), BAD_BODY, (A_SCHEMA,)),
    Row("15.1", "update: an empty body", put(SCHEMA), BAD_BODY, (A_SCHEMA,)),
    Row("15.1", "update: a schema that is no object", change(schema=[]), BAD_BODY, (A_SCHEMA,)),
    Row("1.2", "update: the first JSON value is read, and no more", put(SCHEMA, b'{"type": "json"}{'), Answer(SHOWN),
        (A_SCHEMA,)),
    Row("15.1", "update: what is absent or empty stays", change(name="", type="", schema={}), Answer(SHOWN),
        (A_SCHEMA,)),
    Row("15.1", "update: nothing at all", change(), Answer(SHOWN), (A_SCHEMA,)),
    Row("15.1", "update: a new schema", change(schema={"type": "object"}), Answer({**SHOWN,
        "schema": {"type": "object"}}), (A_SCHEMA,), ((get(SCHEMA), Answer({**SHOWN, "schema": {"type": "object"}})),)),
    Row("15.1, clients A8", "update: a new name, in full", change(name="projects/$P/schemas/Y"),
        Answer({**SHOWN, "name": "projects/$P/schemas/Y"}), (A_SCHEMA,),
        ((get(SCHEMA), NO_SCHEMA), (get(SCHEMAS + "/Y"), Answer({**SHOWN, "name": "projects/$P/schemas/Y"})))),
    Row("15.1", "update: its own name", change(name=NAME), Answer(SHOWN), (A_SCHEMA,)),
    Row("15.1", "update: a name alone", change(name="Y"), BAD_REFERENCE, (A_SCHEMA,)),
    Row("15.1", "update: a name in another project", change(name="projects/other/schemas/Y"), BAD_REFERENCE,
        (A_SCHEMA,)),
    Row("15.1", "update: a name with a slash before it", change(name="/projects/$P/schemas/Y"), BAD_REFERENCE,
        (A_SCHEMA,)),
    Row("17.3 U4, 15.1", "update: a name that could not be asked for", change(name="projects/$P/schemas/a b"),
        error("IA", "Invalid schema name"), (A_SCHEMA,)),
    Row("15.1", "update: a taken name, before the type", change(name="projects/$P/schemas/Y", type="xml"), TAKEN,
        (A_SCHEMA, post(SCHEMAS + "/Y", {"type": "json", "schema": {}}))),
    Row("15.1", "update: another type", change(type="xml"), BAD_TYPE, (A_SCHEMA,)),
    Row("15.1", "update: the type alone checks the stored schema again", change(type="avro"), compile_error(".+"),
        (A_SCHEMA,), ((get(SCHEMA), Answer(SHOWN)),)),
    Row("15.1", "update: a schema that does not compile changes nothing", change(schema={"type": "unknown"}),
        compile_error(".+"), (A_SCHEMA,), ((get(SCHEMA), Answer(SHOWN)),)),
    Row("15.1", "delete is empty", delete(SCHEMA), EMPTY, (A_SCHEMA,), ((get(SCHEMA), NO_SCHEMA),)),
    Row("15.1", "delete an unknown one", delete(SCHEMA), NO_SCHEMA),
    Row("17.3 U12", "a deleted project takes its schemas along", get(SCHEMAS), Answer({"schemas": []}),
        (A_SCHEMA, delete(PROJECT), Request("POST", PROJECT, {}))),
    Row("2, 1.5 2", "a bad name", get(SCHEMAS + "/a@b"), error("IA", "Invalid schema name")),
]  # fmt: skip

DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 3, "exclusiveMaximum": True}


VALIDATED = [
    Row("15.2", "a JSON document as it is", ask({"name": "ann", "age": 3}), VALID, (A_SCHEMA,)),
    Row("15.2", "a document larger than bodies of other requests", ask({"name": "a" * 1_200_000}), VALID, (A_SCHEMA,)),
    Row("15.2", "by an unknown schema, before the body", post(SCHEMA + ":validate", b"{"), NO_SCHEMA),
    Row("15.2", "an avro datum in base64", ask({"data": DATUM}), VALID, (AN_AVRO_SCHEMA,)),
    Row("15.2", "avro: no JSON", post(SCHEMA + ":validate", b"{"), BAD_MAP, (AN_AVRO_SCHEMA,)),
    Row("15.2, 1.2", "avro: an empty body", post(SCHEMA + ":validate"), BAD_MAP, (AN_AVRO_SCHEMA,)),
    Row("15.2", "avro: no object of texts", ask({"data": 1}), BAD_MAP, (AN_AVRO_SCHEMA,)),
    Row("15.2", "avro: no data", ask({}), NO_PAYLOAD, (AN_AVRO_SCHEMA,)),
    Row("15.2, 1.2", "avro: null data is no data", ask({"data": None}), NO_PAYLOAD, (AN_AVRO_SCHEMA,)),
    Row("15.2, 1.2", "avro: a string map is matched exactly", ask({"Data": DATUM}), NO_PAYLOAD, (AN_AVRO_SCHEMA,)),
    Row("15.3", "avro: no base64", ask({"data": "BGF*"}),
        bad_schema("Message 0 is not in valid base64 enocding,illegal base64 data at input byte 3"), (AN_AVRO_SCHEMA,)),
    Row("15.3", "avro: not of the schema", ask({"data": "BGE="}),
        compile_error('Message 0 is not valid\\.field "site": unexpected end of data.*'), (AN_AVRO_SCHEMA,)),
    Row("ours protobuf", "a binary message", ask({"data": "CgF4"}), VALID, (A_PROTO_SCHEMA,)),
    Row("ours protobuf", "another one", ask({"data": "CgJ4"}),
        bad_schema("Message 0 is not valid.the data is not a message A in the binary encoding"), (A_PROTO_SCHEMA,)),
    Row("15.3", "json: nothing at all", post(SCHEMA + ":validate"),
        bad_schema("Message 0 data is not valid JSON format,EOF"), (A_SCHEMA,)),
    Row("15.3", "json: no JSON", post(SCHEMA + ":validate", b"name"),
        compile_error("Message 0 data is not valid JSON format,.+"), (A_SCHEMA,)),
    Row("15.3", "a wrong type", ask({"name": 3}),
        bad_schema("Message 0 data is not valid,name: Invalid type. Expected: string, given: integer"), (A_SCHEMA,)),
    Row("15.3", "several violations", ask({"age": -1, "x": 1}), bad_schema(
        "Message 0 data is not valid.1)age: Must be greater than or equal to 0."
        "2)(root): Additional property x is not allowed.3)(root): name is required."), (A_SCHEMA,)),
    Row("15.1", "draft 4 where it is named", ask(3),
        compile_error("Message 0 data is not valid,.root.: Must be less than 3"), (create(type="json",
        schema=DRAFT_4),)),
]  # fmt: skip

# Topics with a schema (8, 12.2, 15.1), and our additions: attributes and dry runs

ATTACHED = {"schema": NAME}
RULES = {"required": ["site"], "values": {"type": ["raw", "clean"]}, "patterns": {"site": "^[A-Z]+$"}, "closed": True}
GOOD, BAD = base64.b64encode(b'{"name":"ann"}').decode(), base64.b64encode(b"{}").decode()
WITH_RULES = post(SCHEMA, {"type": "json", "schema": PERSON, "attributes": RULES})
RULES_ALONE = post(SCHEMA, {"type": "json", "attributes": RULES})
ATTACH = post(TOPIC + ":attachSchema", ATTACHED)
CHECKED = (A_SCHEMA, A_TOPIC, ATTACH)


def data(document: object) -> dict[str, Any]:
    return {"data": base64.b64encode(json.dumps(document).encode()).decode()}


def send(*messages: dict[str, Any], by: str = "admin") -> Request:
    return post(TOPIC + ":publish", {"messages": list(messages)}, by)


ON_TOPICS = [
    Row("8", "create with a schema", put(TOPIC, ATTACHED), Answer(Has(name="/projects/$P/topics/T", schema=NAME)),
        (A_SCHEMA,), ((get(TOPIC), Answer(Has(schema=NAME))), (publish(BAD), compile_error(".*name is required")))),
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
        ((publish(BAD), compile_error(".*name is required")),)),
    Row("15.1", "a deleted schema is detached", get(TOPIC), Answer(Has(schema=None)), (*CHECKED, delete(SCHEMA)),
        ((publish(BAD), Answer({"messageIds": ["0"]})),)),
    Row("15.1", "a schema made again under the name is not attached", get(TOPIC), Answer(Has(schema=None)),
        (*CHECKED, delete(SCHEMA), A_SCHEMA)),
    Row("15.1, 17.4 O12", "a change is in force for the next publish", publish(BAD), Answer({"messageIds": ["1"]}),
        (*CHECKED, publish(GOOD), change(schema={"type": "object"})),
        ((publish("MQ=="), compile_error(".*given: integer")),)),
    Row("12.2", "what the schema allows is published", publish(GOOD), Answer({"messageIds": ["0"]}), CHECKED),
    Row("12.2, 15.3", "the first message that fails is named, and nothing is stored",
        send(data({"name": "ann"}), data({"name": "a"}), data({})),
        bad_schema("Message 1 data is not valid,name: String length must be greater than or equal to 2"), CHECKED,
        ((publish(GOOD), Answer({"messageIds": ["0"]})),)),
    Row("12.2", "a message that is none comes before the schema", send(data({}), {}),
        error("IA", "Invalid Message Arguments: message 1, counted from 0, has neither data nor attributes"), CHECKED),
    Row("15.3, 17.1 M7", "published data that is not base64", publish(GOOD, "msg 1"),
        bad_schema("Message 1 is not in valid base64 enocding,illegal base64 data at input byte 3"), CHECKED),
    Row("15.3", "so too where other topics take base64 only", publish("msg 1"),
        bad_schema("Message 0 is not in valid base64 enocding,illegal base64 data at input byte 3"), CHECKED,
        served="strict"),
    Row("15.3", "line breaks within base64 are none of its faults", publish(GOOD[:4] + "\r\n" + GOOD[4:]),
        Answer({"messageIds": ["0"]}), CHECKED),
    Row("15.3", "published data that is no JSON", publish("eA=="),
        compile_error("Message 0 data is not valid JSON format,.+"), CHECKED),
    Row("15.3", "published without data", send({"attributes": {"k": "v"}}),
        bad_schema("Message 0 data is not valid JSON format,EOF"), CHECKED),
    Row("15.3", "a published avro datum", publish(DATUM, "BGE="), compile_error("Message 1 is not valid\\..+"),
        (AN_AVRO_SCHEMA, A_TOPIC, ATTACH), ((publish(DATUM), Answer({"messageIds": ["0"]})),)),
    Row("12.2", "the schema comes before the size", send({"data": "e30=", "attributes": {"k": "x" * 2000}}),
        compile_error(".*name is required"), CHECKED, served="small"),
]  # fmt: skip

SITE_ONLY = {"attributes": {"site": "ATHENS"}, **data({"name": "ann"})}

ATTRIBUTES = [
    Row("ours attributes", "create with both parts shows both", WITH_RULES, Answer({**SHOWN, "attributes": RULES})),
    Row("ours attributes", "create with attributes alone", RULES_ALONE,
        Answer({**SHOWN, "schema": {}, "attributes": RULES})),
    Row("ours attributes", "attributes alone need the type json", create(type="avro", attributes=RULES),
        bad_schema("A schema of attributes alone has the type json")),
    Row("ours attributes", "empty attributes are none", create(type="json", attributes={}), BAD_BODY),
    Row("ours attributes", "a field that is none", create(type="json", attributes={"needed": []}),
        compile_error("Schema attributes are not valid: .*needed.*")),
    Row("ours attributes", "a pattern that is none", create(type="json", attributes={"patterns": {"a": "("}}),
        compile_error("Schema attributes are not valid: pattern of a .*")),
    Row("ours attributes", "update adds the part", change(attributes=RULES), Answer({**SHOWN, "attributes": RULES}),
        (A_SCHEMA,)),
    Row("ours attributes", "update with an empty part removes it", change(attributes={}), Answer(SHOWN), (WITH_RULES,)),
    Row("ours attributes", "but not the last part", change(attributes={}),
        bad_schema("A schema without a payload schema needs attributes"), (RULES_ALONE,)),
    Row("ours attributes", "publish: a name that is required", send(SITE_ONLY, {**SITE_ONLY, "attributes": {}}),
        bad_schema("Message 1 attributes are not valid,site: is required"), (WITH_RULES, A_TOPIC, ATTACH),
        ((send(SITE_ONLY), Answer({"messageIds": ["0"]})),)),
    Row("ours attributes", "publish: several violations",
        send({"attributes": {"type": "odd", "site": "athens", "x": "y"}, "data": GOOD}),
        bad_schema('Message 0 attributes are not valid.1)type: must be one of the following: "raw", "clean".'
                "2)site: Does not match pattern '^[A-Z]+$'.3)x: is not allowed."), (WITH_RULES, A_TOPIC, ATTACH)),
    Row("ours attributes", "publish: the payload comes first", send({"attributes": {}, "data": BAD}),
        compile_error("Message 0 data is not valid,.*"), (WITH_RULES, A_TOPIC, ATTACH)),
    Row("ours attributes", "publish: attributes alone take any data", send({"attributes": {"site": "A"},
        "data": "eA=="}), Answer({"messageIds": ["0"]}), (RULES_ALONE, A_TOPIC, ATTACH)),
    Row("ours attributes", "validate a message", ask({"attributes": {"site": "a"}, "data": GOOD}),
        bad_schema("Message 0 attributes are not valid,site: Does not match pattern '^[A-Z]+$'"), (WITH_RULES,),
        ((ask(SITE_ONLY), VALID),)),
    Row("ours attributes, 15.2", "validate a document alone, as ever", ask({"name": "ann"}), VALID, (WITH_RULES,)),
    Row("ours attributes", "validate: attributes alone need a message", ask({"name": "ann"}), NO_PAYLOAD,
        (RULES_ALONE,)),
    Row("15.2", "without an attributes part, attributes are a document's", ask({"attributes": {"site": "A"}}),
        compile_error(".*Additional property attributes is not allowed.*"), (A_SCHEMA,)),
]  # fmt: skip


def dry_run(**body: object) -> Request:
    return post(SCHEMA + ":dryRun", {"topic": "projects/$P/topics/T", **body})


DRY_RUNS = [
    Row("ours dryRun", "the newest messages", dry_run(messages=4), Answer({"checked": 4, "refused": 2, "reasons": [
        {"messageId": "1", "reason": "Message 1 data is not valid,(root): name is required"},
        {"messageId": "3", "reason": Like("Message 3 data is not valid JSON format,.+")}]}),
        (A_SCHEMA, A_TOPIC, publish(GOOD, BAD, GOOD, "eA==", GOOD)), ((get(TOPIC), Answer(Has(schema=None))),)),
    Row("ours dryRun", "at most twenty reasons", dry_run(), Answer(Has(checked=25, refused=25)),
        (A_SCHEMA, A_TOPIC, publish(*[BAD] * 25))),
    Row("ours dryRun", "an unknown schema first", dry_run(topic=""), NO_SCHEMA),
    Row("ours dryRun", "a bad reference", dry_run(topic="T"), error("IA", "Invalid Topic name"), (A_SCHEMA,)),
    Row("ours dryRun", "an unknown topic", dry_run(), NO_TOPIC, (A_SCHEMA,)),
    Row("ours dryRun", "no messages", dry_run(messages=0), error("IA", "Invalid Dry Run Arguments"), (A_SCHEMA,)),
]  # fmt: skip

ROWS = [*MANAGED, *VALIDATED, *ON_TOPICS, *ATTRIBUTES, *DRY_RUNS]
