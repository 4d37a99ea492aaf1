"""Valid exports; all other files are refused with the number of the first bad line."""

import dataclasses
import gzip
import re
from pathlib import Path
from typing import get_args

import pytest

from ams.app.moving.importer import check
from ams.core import issuer as identity
from ams.core.errors import Unusable
from ams.core.names import IssuerName
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.core.push_config import PushConfig
from ams.storage.export_format import AnyLine, Issuer, PushSecret, Revision, RoleRule, Tally
from ams.storage.registry.logins import issuer_on
from tests.app.moving.lines import HEADER, Fields, ignore_progress, line, whole_export, write_lines
from tests.support.program_keys import public_pem

FORMAT = Path(__file__).parents[3] / "docs" / "reference" / "export-format.md"
UUID = "0b2c1f00-1111-4222-8333-444455556666"
USER = line("user", name="u", token="t")
PROJECT = line("project", name="p")
LOG = line("log", project="p", topic="t", first=5)
TOPIC = line("topic", project="p", name="t")
HTTPS = {"type": "http_endpoint", "endpoint": "https://receiver.example.org/"}
DEAD = HTTPS | {"dead_letter_topic": "d", "max_delivery_attempts": 5}
SECRET = {"secret": "whsec_" + "MDEy" * 8}

TOKEN = line("named_token", user="u", name="n", hash="0" * 64)
OTHER_TOKEN = line("named_token", user="u", name="m", hash="1" * 64)
BINDING = line("binding", user="u", name="b", issuer="https://issuer.example", subject="s")
ISSUER = line("issuer", name="i", url="https://issuer.example", audiences=["ams"])
RULE = {"entitlement": "urn:mace:example.org:group:vo", "project": "p", "roles": ["consumer"]}
SCHEMA = line("schema", project="p", name="x", revisions=[{"revision": 1, "type": "json"}])
SNAPSHOT = line("snapshot", project="p", name="n", topic="t", created_on=1, expires_on=2)
ASKED = ISSUER | {"introspect": "opaque", "client_id": "ams"}


def message(offset: int, time: int = 1000) -> Fields:
    return line("message", offset=offset, time=time, data="")


def sub(name: str = "s", **fields: object) -> Fields:
    return line("subscription", project="p", name=name, topic="t", **fields)


def parallel(**options: object) -> Fields:
    return sub(parallel=options)


BAD = {
    "a kind nobody knows": ([line("usr", name="u")], 2, "Invalid value 'usr' - at `$.kind`"),
    "a misspelt field": ([line("user", nam="u")], 2, "Object contains unknown field `nam`"),
    "a field of another type": ([line("user", name=5)], 2, "…- at `$.name`"),
    "a name that is none": ([line("user", name="a b")], 2, "Invalid user name"),
    "a negative offset": ([LOG, message(-1)], 3, "…- at `$.offset`"),
    "too long an ordering key": ([LOG, message(5) | {"orderingKey": "é" * 513}], 3,
        "an ordering key of more than 1024 bytes"),
    "two users of one name": ([USER, USER | {"token": "o"}], 3, "a second user u"),
    "two users with one token": ([USER, USER | {"name": "v"}], 3, "a token that another user has"),
    "two users with one id": ([USER | {"id": UUID}, line("user", name="v", id=UUID)], 3,
        f"a second user with id {UUID}"),
    "an id that is none": ([USER | {"id": UUID.upper()}], 2,
        "id '0B2C1F00-1111-4222-8333-444455556666' is no uuid in lower-case digits"),
    "a maker who is unknown": ([USER | {"created_by": "v"}], 2, "user v is not on any line before"),
    "two projects of one name": ([PROJECT, PROJECT], 3, "a second project p"),
    "a day that is none": ([PROJECT | {"days": [["2026-02-30", 1, 1]]}], 2, "'2026-02-30' is no day: YYYY-MM-DD"),
    "a day twice": ([PROJECT | {"days": [["2026-02-03", 1, 1]] * 2}], 2, "day 2026-02-03 twice"),
    "a member who is unknown": ([PROJECT, line("membership", user="u", project="p")], 3,
        "user u is not on any line before"),
    "a member of an unknown project": ([USER, line("membership", user="u", project="p")], 3,
        "project p is not on any line before"),
    "a member twice": ([USER, PROJECT, *[line("membership", user="u", project="p")] * 2], 5,
        "a second membership of user u in project p"),
    "a message before any log": ([message(0)], 2, "a message before any log"),
    "two logs of one topic": ([LOG, LOG], 3, "a second log of topic t of project p"),
    "a message below the first": ([LOG, message(4)], 3, "offset 4 where 5 or a later one must be"),
    "an offset twice": ([LOG, message(5), message(5)], 4, "offset 5 where 6 or a later one must be"),
    "a time that goes backwards": ([LOG, message(5), message(6, 999)], 4,
        "a publish time before that of the message above"),
    "a log without its topic": ([LOG, PROJECT], 4, "topic t of project p, whose log is on line 2, has no line"),
    "another id than the log's": ([LOG | {"id": UUID}, PROJECT, TOPIC | {"id": UUID[:-1] + "7"}], 4,
        "another id than the log's on line 2"),
    "a topic of an unknown project": ([TOPIC], 2, "project p is not on any line before"),
    "two topics of one name": ([PROJECT, TOPIC, TOPIC], 4, "a second topic t of project p"),
    "a schema that is unknown": ([PROJECT, TOPIC | {"schema": "x"}], 3, "schema x is not on any line before"),
    "a quota that does not exist": ([PROJECT | {"quotas": {"pages": 1}}], 2, "…connections, waitingPulls, streams"),
    "somebody unknown on a list": ([PROJECT, TOPIC | {"authorized": ["u"]}], 3, "user u is not on any line before"),
    "somebody twice on a list": ([USER, PROJECT, TOPIC | {"authorized": ["u", "u"]}], 4,
        "user u twice on the access list"),
    "a retention of two years": ([PROJECT, TOPIC | {"retention": 2 * 365 * 86_400_000}], 3, "…- at `$.retention`"),
    "a schema without a revision": ([PROJECT, line("schema", project="p", name="x", revisions=[])], 3,
        "…- at `$.revisions`"),
    "revisions that do not grow": ([PROJECT, SCHEMA | {"revisions": SCHEMA["revisions"] * 2}], 3,
        "revisions that do not grow"),
    "a last revision that is there": ([PROJECT, SCHEMA | {"last_revision": 1}], 3,
        "a last_revision that is not above those that are there"),
    "an encoding of no schema": ([PROJECT, TOPIC | {"schema_encoding": "JSON"}], 3,
        "schema_encoding, first_revision or last_revision without a schema"),
    "an encoding that is none": ([PROJECT, SCHEMA, TOPIC | {"schema": "x", "schema_encoding": "XML"}], 4,
        "…- at `$.schema_encoding`"),
    "a deleted schema and one that is there": ([PROJECT, SCHEMA, TOPIC | {"schema": "x", "deleted_schema": "JSON"}], 4,
        "deleted_schema with a schema"),
    "a first revision of no schema": ([PROJECT, TOPIC | {"first_revision": 1}], 3,
        "schema_encoding, first_revision or last_revision without a schema"),
    "revisions the wrong way round": (
        [PROJECT, SCHEMA, TOPIC | {"schema": "x", "first_revision": 2, "last_revision": 1}], 4,
        "first_revision 2 after last_revision 1",
    ),
    "two subscriptions of one name": ([PROJECT, TOPIC, sub(), sub()], 5, "a second subscription s of project p"),
    "a cursor beyond the end": ([LOG, message(5), PROJECT, TOPIC, sub(offset=7)], 6,
        "offset 7 is beyond the end of the topic, 6"),
    "done that is no range": ([LOG, message(5), PROJECT, TOPIC, sub(offset=2, done=[[4, 4]])], 6,
        "done from 4 to 4: ranges go upwards from the offset, and are not empty"),
    "done below the offset": ([LOG, message(5), PROJECT, TOPIC, sub(offset=2, done=[[1, 3]])], 6,
        "done from 1 to 3: ranges go upwards from the offset, and are not empty"),
    "done in no order": ([LOG, message(9), PROJECT, TOPIC, sub(done=[[4, 6], [2, 3]])], 6,
        "done from 2 to 3: ranges go upwards from the offset, and are not empty"),
    "done too far away": ([LOG | {"first": 2**40}, PROJECT, TOPIC, sub(done=[[4, 2**33]])], 5,
        "done to 8589934592: more than 4294967296 messages after the offset"),
    "done of an ordered subscription": ([LOG, message(5), PROJECT, TOPIC, sub(done=[[4, 6]])], 6,
        "done one by one, of a subscription that is not parallel"),
    "done beyond the end": ([LOG, message(5), PROJECT, TOPIC, sub(done=[[4, 7]])], 6,
        "done to 7 is beyond the end of the topic, 6"),
    "a cursor beyond the end of nothing": ([PROJECT, TOPIC, sub(offset=1)], 4,
        "offset 1 is beyond the end of the topic, 0"),
    "a deadline over ten minutes": ([PROJECT, sub(ack_deadline_seconds=601)], 3, "…- at `$.ack_deadline_seconds`"),
    "a push of no known type": ([PROJECT, sub(push={"type": "post"})], 3, "push of type 'post', which is none"),
    "Google's form of an ordered one": ([PROJECT, sub(push=HTTPS | {"google": {}})], 3,
        "push in Google's form that is not to an endpoint, or of one that is not parallel"),
    "a push to no https": ([PROJECT, sub(push=HTTPS | {"endpoint": "http://a.example/"})], 3,
        "a push endpoint that is no https URL"),
    "a push with credentials": ([PROJECT, sub(push=HTTPS | {"endpoint": "https://user:s3cret@a.example/"})], 3,
        "a push endpoint with a user and password in its URL"),
    "dead letters beside a topic": ([PROJECT, sub(push=HTTPS | {"max_delivery_attempts": 5})], 3,
        "max_delivery_attempts without a dead_letter_topic"),
    "dead letters to no name": ([PROJECT, sub(push=DEAD | {"dead_letter_topic": "a@b"})], 3,
        "Invalid dead letter topic name"),
    "dead letters into its own topic": ([PROJECT, sub(push=DEAD | {"dead_letter_topic": "t"})], 3,
        "a dead letter topic that is the subscription's own"),
    "too many attempts": ([PROJECT, sub(push=DEAD | {"max_delivery_attempts": 1001})], 3,
        "max_delivery_attempts 1001, and there are 1 to 1000"),
    "no attempt": ([PROJECT, sub(push=DEAD | {"max_delivery_attempts": 0})], 3,
        "max_delivery_attempts 0, and there are 1 to 1000"),
    "some at a time of an ordered one": ([PROJECT, sub(push=HTTPS | {"max_outstanding": 1})], 3,
        "max_outstanding 1, and a parallel one has up to 1000"),
    "too many at a time": ([PROJECT, parallel() | {"push": HTTPS | {"max_outstanding": 1001}}], 3,
        "max_outstanding 1001, and a parallel one has up to 1000"),
    "two places for dead letters": ([PROJECT, parallel() | {"push": DEAD}], 3,
        "a dead letter topic for push of a parallel subscription, which has a policy for that"),
    "a push secret of nothing": ([PROJECT, sub(push_secrets=[SECRET])], 3, "push_secrets without a push endpoint"),
    "a push secret that is none": ([PROJECT, sub(push=HTTPS, push_secrets=[{"secret": "x"}])], 3,
        "a signing secret must be whsec_ and base64 of 24 to 64 bytes"),
    "three push secrets": ([PROJECT, sub(push=HTTPS, push_secrets=[SECRET] * 3)], 3, "more than 2 push_secrets"),
    "a backoff of an hour": ([PROJECT, parallel(retry_policy={"maximum_backoff": 3_600_000})], 3,
        "Fields minimumBackoff and maximumBackoff should be between 0s and 600s"),
    "dead letters of it to no name": ([PROJECT, parallel(dead_letter_policy={"topic": "."})], 3,
        "Invalid dead letter topic name"),
    "a parallel deadline of 9 s": ([PROJECT, parallel() | {"ack_deadline_seconds": 9}], 3,
        "ack_deadline_seconds of a parallel subscription is 10 or more"),
    "two snapshots of one name": ([PROJECT, TOPIC, SNAPSHOT, SNAPSHOT], 5, "a second snapshot n of project p"),
    "a snapshot of an unknown topic": ([PROJECT, SNAPSHOT], 3, "topic t is not on any line before"),
    "a snapshot beyond the end": ([PROJECT, TOPIC, SNAPSHOT | {"floor": 1}], 4,
        "offset 1 is beyond the end of the topic, 0"),
    "a snapshot of no ranges": ([PROJECT, TOPIC, SNAPSHOT | {"done": [[1, 1]]}], 4,
        "done from 1 to 1: ranges go upwards from the offset, and are not empty"),
    "a snapshot of the future": ([PROJECT, TOPIC, SNAPSHOT | {"done": [[1, 2]]}], 4,
        "done to 2 is beyond the end of the topic, 0"),
    "two pending registrations": ([line("registration", name="n")] * 2, 3, "a second pending registration of n"),
    "two counts of lost messages": ([line("lost", messages=1)] * 2, 3, "a second line of kind lost"),
    "a token of somebody unknown": ([TOKEN], 2, "user u is not on any line before"),
    "a token made by somebody unknown": ([USER, TOKEN | {"created_by": "v"}], 3, "user v is not on any line before"),
    "two tokens of one name": ([USER, TOKEN, TOKEN], 4, "a second token n of user u"),
    "a token whose name is none": ([USER, TOKEN | {"name": "a b"}], 3, "Invalid token name"),
    "a key that is none": ([USER, TOKEN | {"public_key": "x"}], 3,
        "Invalid public_key: give an RSA key of 2048 to 4096 bits and exponent 65537, in PEM"),
    "two tokens of one key": ([USER, TOKEN | {"public_key": public_pem()}, OTHER_TOKEN | {"public_key": public_pem()}],
        4, "a public_key that another named token has"),
    "two tokens of one text": ([USER, TOKEN, TOKEN | {"name": "m"}], 4, "a hash that another named token has"),
    "two tokens with one id": ([USER, TOKEN | {"id": UUID}, TOKEN | {"id": UUID}], 4,
        f"a second named token with id {UUID}"),
    "a hash that is none": ([USER, TOKEN | {"hash": "0" * 63}], 3, "…- at `$.hash`"),
    "a token without rights": ([USER, TOKEN | {"rights": []}], 3,
        "A token is good for something: give it a right, or leave rights out for all of the user's"),
    "a right to nothing there can be": ([USER, TOKEN | {"rights": [["*", "topics/t"]]}], 3,
        "invalid resource: topics/t"),
    "a binding of somebody unknown": ([BINDING], 2, "user u is not on any line before"),
    "two bindings of one name": ([USER, BINDING, BINDING], 4, "a second binding b of user u"),
    "two bindings to one identity": ([USER, BINDING, BINDING | {"name": "c"}], 4,
        "a second binding to the same identity"),
    "a binding to nobody": ([USER, BINDING | {"subject": ""}], 3,
        "a binding to no identity: issuer and subject say which"),
    "two issuers of one name": ([ISSUER, ISSUER | {"url": "https://o.example"}], 3, "a second issuer i"),
    "two issuers with one url": ([ISSUER, ISSUER | {"name": "j"}], 3, "a url that another issuer has"),
    "an issuer of everybody's tokens": ([ISSUER | {"audiences": []}], 2,
        "An issuer needs audiences or clients: else its tokens for other services would do here"),
    "an issuer made by somebody unknown": ([ISSUER | {"created_by": "v"}], 2, "user v is not on any line before"),
    "kinds out of order": ([PROJECT, USER], 3, "a line of kind user may not stand here: kinds have an order"),
    "a second header": ([HEADER], 2, "a second line of kind header"),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "number", "said"), BAD.values(), ids=BAD)
def test_a_bad_line_is_told_by_its_number(tmp_path: Path, lines: list[Fields], number: int, said: str) -> None:
    path = write_lines(tmp_path / "file", whole_export(*lines))

    with pytest.raises(Unusable) as refused:
        check(path, ignore_progress)

    place, _, text = str(refused.value).partition(": ")
    assert place == f"{path}, line {number}"
    assert text == said or (said[0] == "…" and text.endswith(said[1:]))  # the beginning is of a library, or a list


def test_what_is_good_is_counted(tmp_path: Path) -> None:
    lines = [
        LOG, message(5), message(9), USER, PROJECT, TOPIC, sub(offset=10, push=DEAD, push_secrets=[SECRET]),
        parallel() | {"name": "each", "offset": 3, "done": [[3, 4], [6, 10]]}, sub("other") | {"topic": "gone"},
    ]  # fmt: skip
    identity = [USER, TOKEN | {"rights": [["news:read", "projects/gone"]]}, BINDING, ISSUER | {"roles": [RULE]}]
    counts = {"log": 1, "message": 2, "user": 1, "project": 1, "topic": 1, "subscription": 3}

    assert check(write_lines(tmp_path / "file", whole_export(*lines)), ignore_progress) == counts
    assert check(write_lines(tmp_path / "file", whole_export(*identity)), ignore_progress)["named_token"] == 1
    _, *without_secrets = whole_export(ASKED)
    assert check(write_lines(tmp_path / "file", [HEADER | {"secrets": False}, *without_secrets]), ignore_progress) == {
        "issuer": 1
    }


def test_an_issuer_on_a_line_is_what_an_issuer_is() -> None:
    here = {field.name for field in dataclasses.fields(identity.Issuer)}
    made = {"id", "created_on", "modified_on", "created_by"}

    assert set(Issuer.__struct_fields__) == here | made
    bare = Issuer(name="i", url="https://issuer.example")
    assert issuer_on(bare) == identity.Issuer(IssuerName("i"), "https://issuer.example")


@pytest.mark.parametrize(("lines", "said"), [
    ([HEADER | {"format": 2}, *whole_export()[1:]],
     "line 1: the file is in format 2, this program reads 1; upgrade it"),
    (whole_export(USER)[1:], "line 1: an export begins with a line of kind header"),
    ([*whole_export(USER, PROJECT)[:2], whole_export(USER, PROJECT)[3]],
     "line 3: the file has other lines than it says: project 1, and there are 0"),
    ([*whole_export(USER), PROJECT], "line 4"),
], ids=["another format", "no header", "other counts", "more after the end"])  # fmt: skip
def test_a_file_that_is_no_whole_export_is_refused(tmp_path: Path, lines: list[Fields], said: str) -> None:
    with pytest.raises(Unusable, match=said):
        check(write_lines(tmp_path / "file", lines), ignore_progress)


@pytest.mark.parametrize("name", ["file", "file.gz"])
def test_a_file_cut_anywhere_is_noticed(tmp_path: Path, name: str) -> None:
    text = tmp_path / "all"
    write_lines(text, whole_export(LOG, message(5), USER, PROJECT, TOPIC))
    data = text.read_bytes() if name == "file" else gzip.compress(text.read_bytes())
    path = tmp_path / name

    # The last line is complete even without its line end; a compressed file ends with its checksum.
    for length in range(0, len(data) - 1, 7):
        path.write_bytes(data[:length])
        with pytest.raises(Unusable):
            check(str(path), ignore_progress)


def test_bytes_that_are_no_text_and_lines_that_are_no_objects_are_told(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(Unusable, match="No such file"):
        check(str(path), ignore_progress)
    for bad in (b"\xff\xfe", b"{", b"[]", b"null", b'{"kind":"user","name":"\xff"}'):
        path.write_bytes(b'{"kind":"header","format":1}\n\n' + bad + b"\n")
        with pytest.raises(Unusable, match="line 3"):
            check(str(path), ignore_progress)


def test_no_message_tells_a_token(tmp_path: Path) -> None:
    secret = "a-token-nobody-may-see"
    for lines in ([USER | {"token": secret}] * 2, [USER | {"token": secret, "nam": 1}], [USER | {"token": [secret]}]):
        with pytest.raises(Unusable) as refused:
            check(write_lines(tmp_path / "file", whole_export(*lines)), ignore_progress)
        assert secret not in repr(refused.value)
        assert refused.value.__cause__ is None


def test_the_example_of_the_reference_is_an_export(tmp_path: Path) -> None:
    (example,) = re.findall(r"```json\n(.*?)```", FORMAT.read_text(), re.DOTALL)
    path = tmp_path / "file"
    path.write_text(example)
    assert sum(check(str(path), ignore_progress).values()) == len(example.splitlines()) - 2


def test_every_kind_and_every_field_is_in_the_reference() -> None:
    text = FORMAT.read_text()
    fields = {
        field
        for each in (*get_args(AnyLine), Tally, Revision, PushSecret, RoleRule)
        for field in each.__struct_encode_fields__
    }
    options = {f.name for e in (ParallelOptions, RetryPolicy, DeadLetterPolicy) for f in dataclasses.fields(e)}
    kinds = {str(each.__struct_config__.tag) for each in get_args(AnyLine)}
    push = {field.name for field in dataclasses.fields(PushConfig)}

    assert {word for word in fields | kinds | push | options if f"`{word}`" not in text} == set()
