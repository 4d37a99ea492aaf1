"""The registry as lines of an export: read, and loaded, on every database."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from ams.core.errors import AlreadyExists, Damaged
from ams.core.names import new_topic_id
from ams.core.parallel_options import DeadLetterPolicy, ParallelOptions, RetryPolicy
from ams.core.rights import Right
from ams.storage import export_format as export
from ams.storage.export_format import Line, decode_line, encode_line
from ams.storage.registry.export import Loaded, RegistryImport
from ams.storage.registry.registry import Registry
from ams.storage.secrets import token_hash

LINES = (
    export.User(name="u", token="t", service_roles=("service_admin",)), export.Project(name="P", created_by="u"),
    export.Membership(user="u", project="P", roles=("project_admin", "consumer")),
    export.Topic(project="P", name="T", authorized=("u",)),
)  # fmt: skip

IDENTITY = (
    export.NamedToken(
        user="u", name="n", hash=token_hash("shown once"), rights=(Right("*", "projects/P"),), expires_on=5
    ),
    export.Binding(user="u", name="b", issuer="https://issuer.example", subject="s"),
    export.Issuer(name="i", url="https://issuer.example", audiences=("ams",), client_secret="x"),
)

PARALLEL = (
    export.Subscription(
        project="P", name="S", topic="T",
        parallel=ParallelOptions(RetryPolicy(), DeadLetterPolicy("D", 7), "attributes:a", retain_acked_messages=True),
    ),
    export.Snapshot(project="P", name="N", topic="T", created_on=1, expires_on=2, floor=3, done=((5, 7), (9, 10))),
)  # fmt: skip


def do_nothing(filling: RegistryImport) -> None:
    """Have nothing else to do."""


async def contents(registry: Registry) -> list[Line]:
    return await registry.export_lines(list, {}, with_secrets=True)


async def test_what_was_filled_in_is_read_out_again(registry: Registry) -> None:
    topic = new_topic_id()

    await registry.fill(LINES, {("P", "T"): Loaded(topic, 123)}, do_nothing)

    user, project, membership, made = await contents(registry)
    assert (user.name, user.token, user.service_roles) == ("u", "t", ("service_admin",))
    assert (project.name, project.created_by) == ("P", "u")
    assert membership == LINES[2]
    assert (made.name, made.authorized) == ("T", ("u",))
    assert (await registry.topics.ids(), await registry.idempotency.bytes_of(topic)) == ({topic}, 123)
    assert (await registry.users.by_token("t")).name == "u"


async def test_a_named_token_opens_by_its_hash_alone_and_identities_are_filled_in(registry: Registry) -> None:
    await registry.fill([*LINES, *IDENTITY], {}, do_nothing)

    principal = await registry.users.principal("shown once")
    assert (principal.name, principal.login.rights, principal.login.expires_on) == ("u", (("*", "projects/P"),), 5)
    assert await registry.users.principal(token_hash("shown once")) is None
    assert await registry.bindings.principal("https://issuer.example", "s") == (replace(principal, login=None), False)
    assert [each.client_secret for each in await registry.issuers.all()] == ["x"]
    token, binding, issuer = (await contents(registry))[-3:]
    assert (token.hash, token.user, token.created_by) == (IDENTITY[0].hash, "u", None)
    assert (binding.issuer, binding.subject, issuer.client_secret) == ("https://issuer.example", "s", "x")


async def test_a_parallel_subscription_and_a_snapshot_are_filled_in_as_they_were(registry: Registry) -> None:
    await registry.fill([*LINES, *PARALLEL], {}, do_nothing)
    subscription, snapshot = (await contents(registry))[-2:]
    assert subscription.parallel == PARALLEL[0].parallel
    assert snapshot == PARALLEL[1]


async def test_labels_and_what_is_said_of_schemas_are_filled_in_as_they_were(registry: Registry) -> None:
    types = ((1, "json"), (2, "protobuf"), (3, "avro"))
    revisions = tuple(export.Revision(revision=n, type=type_, created_on=5) for n, type_ in types)
    schema = export.Schema(project="P", name="X", last_revision=4, revisions=revisions)
    topic = export.Topic(
        project="P", name="T", schema="X", schema_encoding="BINARY", first_revision=1, last_revision=3,
        labels={"a": "1"},
    )  # fmt: skip
    labelled = [msgspec.structs.replace(each, labels={"b": "2"}) for each in PARALLEL]
    bare = export.Topic(project="P", name="T2", deleted_schema="JSON")

    await registry.fill([*LINES[:-1], schema, topic, bare, *labelled], {}, do_nothing)

    made, on, without, subscription, snapshot = (await contents(registry))[-5:]
    assert (without.schema, without.deleted_schema, on.deleted_schema) == (None, "JSON", "")
    assert (made.revisions, made.last_revision) == (schema.revisions, 4)
    assert (on.schema, on.schema_encoding, on.first_revision, on.last_revision) == ("X", "BINARY", 1, 3)
    assert (on.labels, subscription.labels, snapshot.labels) == ({"a": "1"}, {"b": "2"}, {"b": "2"})


async def test_what_older_exports_do_not_say_is_not_there(registry: Registry) -> None:
    bare = (
        b'{"kind":"user","name":"u"}', b'{"kind":"project","name":"P"}',
        b'{"kind":"schema","project":"P","name":"X","revisions":[{"revision":2,"type":"json"}]}',
        b'{"kind":"topic","project":"P","name":"T","schema":"X"}',
        b'{"kind":"subscription","project":"P","name":"S","topic":"T"}',
        b'{"kind":"snapshot","project":"P","name":"N","topic":"T","created_on":1,"expires_on":2}',
    )  # fmt: skip
    await registry.fill([decode_line(each) for each in bare], {}, do_nothing)

    new = (b"labels", b"deleted_schema", b"last_revision", b"first_revision", b"schema_encoding")
    written = b"".join(encode_line(each) for each in await contents(registry))
    assert [each for each in new if each in written] == []
    project = await registry.projects.find("P")
    topic = await registry.topics.find(project.id, "T")
    assert (topic.labels, topic.schema.encoding, topic.schema.first_revision) == ({}, "", None)
    schema = await registry.schemas.find(project.id, "X")
    assert (await registry.schemas.update(schema, content=schema.content)).revision == 3


async def test_of_what_fails_at_the_end_nothing_is_there(registry: Registry) -> None:
    def fail(filling: RegistryImport) -> None:
        raise Damaged("the cursors could not be made")

    def break_off() -> Iterator[Line]:
        yield LINES[0]
        raise Damaged("a line could not be read")

    for lines, finish in ((LINES, fail), (break_off(), do_nothing)):
        with pytest.raises(Damaged):
            await registry.fill(lines, {}, finish)

    assert await registry.is_empty()
    assert await contents(registry) == []


async def test_a_name_that_is_taken_after_all_leaves_nothing(registry: Registry) -> None:
    with pytest.raises(AlreadyExists):
        await registry.fill([*LINES, LINES[1]], {}, do_nothing)
    assert await registry.is_empty()
