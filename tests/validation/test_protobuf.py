"""Payloads in Protocol Buffers, compared with the parser and JSON mapping of protobuf."""

import base64
import json
from typing import Any

import pytest
from google.protobuf import json_format, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.validation.compiled import compile_schema
from ams.validation.cost import INLINE_UNITS, Budget, OverBudget
from ams.validation.protobuf import KNOWN_FILES, MAX_DESCRIPTOR_BYTES, ProtobufSchema
from ams.validation.protobuf_compiler import compile_definition

PROTO3 = 'syntax = "proto3";'
READING = (
    PROTO3
    + """
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
package site.example;
message Reading {
  enum Kind { KIND_UNSPECIFIED = 0; AIR = 1; }
  message Part { string name = 1; repeated sint64 values = 2; Part inner = 3; }
  string site_name = 1; uint64 number = 2; double value = 3; bool ok = 4; bytes raw = 5; Kind kind = 6;
  map<string, Part> parts = 7; repeated Part more = 20;
  google.protobuf.Timestamp at = 9; google.protobuf.Struct tags = 10;
  oneof either { int32 one = 11; string other = 12; } optional float least = 13;
}"""
)
PROTO2 = """syntax = "proto2";
message Old {
  required string name = 1; optional group Inner = 2 { required int32 x = 1; }
  repeated int32 packed = 3 [packed = true];
  extensions 100 to max; extend Old { optional string more = 100; }
}"""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PARTS = st.recursive(
    st.fixed_dictionaries({}, optional={"name": TEXTS, "values": st.lists(st.integers(-(2**63), 2**63 - 1))}),
    lambda inner: st.fixed_dictionaries({"inner": inner}, optional={"name": TEXTS}), max_leaves=3,
)  # fmt: skip
READINGS = st.fixed_dictionaries({}, optional={
    "siteName": TEXTS, "number": st.integers(0, 2**64 - 1), "value": st.floats(allow_nan=False, allow_infinity=False),
    "ok": st.booleans(), "raw": st.binary().map(lambda each: base64.b64encode(each).decode()),
    "kind": st.sampled_from(["AIR", 1, 0, 7]), "parts": st.dictionaries(TEXTS, PARTS, max_size=3),
    "more": st.lists(PARTS, max_size=3), "at": st.just("2026-02-03T04:05:06.007Z"), "one": st.integers(-5, 5),
    "tags": st.dictionaries(TEXTS, st.none() | st.booleans() | TEXTS, max_size=3), "least": st.integers(-5, 5),
})  # fmt: skip
OLD_MESSAGES = st.fixed_dictionaries(
    {"name": TEXTS}, optional={"inner": st.just({"x": 5}), "packed": st.lists(st.integers(-5, 5)), "[Old.more]": TEXTS}
)


def compile_descriptor(definition: str) -> bytes:
    [descriptor] = compile_definition([memoryview(definition.encode())])
    return descriptor


class Kind:
    def __init__(self, definition: str, name: str) -> None:
        descriptor, pool = compile_descriptor(definition), DescriptorPool()
        for each in (*KNOWN_FILES.values(), descriptor):
            pool.AddSerializedFile(each)
        self.type = GetMessageClass(pool.FindMessageTypeByName(name))
        self.binary, self.json = ProtobufSchema(descriptor), ProtobufSchema(descriptor, is_json=True)


KINDS = {READING: Kind(READING, "site.example.Reading"), PROTO2: Kind(PROTO2, "Old")}
MESSAGES = st.tuples(st.just(KINDS[READING]), READINGS) | st.tuples(st.just(KINDS[PROTO2]), OLD_MESSAGES)


def accepts(schema: ProtobufSchema, data: bytes) -> bool:
    try:
        schema.check(0, data, Budget())
    except InvalidInput as error:
        assert error.message.startswith("Message 0 is not valid.")
        return False
    return True


@given(MESSAGES)
def test_what_protobuf_writes_is_valid_and_shown_as_its_json(case: tuple[Kind, dict[str, Any]]) -> None:
    kind, value = case
    message = json_format.ParseDict(value, kind.type())
    data = message.SerializeToString()

    assert accepts(kind.binary, data)
    assert accepts(kind.json, json_format.MessageToJson(message).encode())
    assert accepts(kind.json, json.dumps(value).encode())
    for whole in (False, True):
        assert json_format.ParseDict(kind.binary.as_dict(data, whole=whole), kind.type()) == message


@given(MESSAGES, st.data())
def test_changed_bytes_are_valid_where_protobuf_reads_them(case: tuple[Kind, dict[str, Any]], draw: st.DataObject):
    kind, value = case
    for is_json in (False, True):
        whole = json_format.ParseDict(value, kind.type()).SerializeToString()
        data = bytearray(json.dumps(value).encode() if is_json else whole)
        for _ in range(draw.draw(st.integers(1, 3))):
            at = draw.draw(st.integers(0, len(data)))
            data[at : at + draw.draw(st.integers(0, 1))] = draw.draw(st.binary(max_size=2))
        if is_json:
            accepts(kind.json, bytes(data))
            continue
        try:
            is_good = kind.type.FromString(bytes(data)).IsInitialized()
        except DecodeError:
            is_good = False
        assert accepts(kind.binary, bytes(data)) == is_good


@pytest.mark.parametrize(("definition", "is_json", "data"), [
    (READING, False, b"\x0a\x05ab"), (READING, False, b"\x0a\x01\xff"), (READING, False, b"\x00"),
    (READING, False, b"\xa3" * 300), (PROTO2, False, b""), (PROTO2, False, b"\x0a\x01a\x13\x14"),
    (PROTO2, True, b"{}"), *((READING, True, each) for each in (
        b"", b"[]", b"null", b'""', b"{", b'{"none": 1}', b'{"number": -1}', b'{"number": "x"}', b'{"number": 1.5}',
        b'{"kind": "NONE"}', b'{"raw": 1}', b'{"one": 1, "other": "x"}', b'{"at": "yesterday"}', b'{"ok": "true"}',
        b'{"siteName": 1}', b'{"siteName": "\xff"}', b'{"value": NaN}',
        b'{"siteName": "\\ud800"}', b'{"least": 1e300}', b'{"parts": []}', b'{"number": ' + b"1" * 5000 + b"}",
        b'{"tags": {"a":' * 2000, b'{"more": [{"inner":' * 200 + b"{}" + b"}]}" * 200,
    )),
])  # fmt: skip
def test_data_that_is_no_message_is_refused(definition: str, is_json: bool, data: bytes) -> None:
    kind = KINDS[definition]
    assert not accepts(kind.json if is_json else kind.binary, data)


def test_a_field_that_the_definition_does_not_have_is_taken_in_binary_and_refused_in_json() -> None:
    kind = KINDS[READING]
    assert accepts(kind.binary, wrappers_pb2.StringValue(value="a").SerializeToString() + b"\xf8\x07\x01")
    assert not accepts(kind.json, b'{"siteName": "a", "unknown": 1}')


@pytest.mark.parametrize(("definition", "told"), [
    ("", "A schema defines one message on top"), (PROTO3 + "enum E { A = 0; }", "one message on top"),
    (PROTO3 + "message A {} message B {}", "one message on top"), (PROTO3 + "message A {} service S {}", "one message"),
    ("message A { extensions 1; } extend A { optional int32 a = 1; }", "one message on top"),
    ('edition = "2023"; message A {}', "The syntax of a schema is proto2 or proto3"),
    ('syntax = "proto4"; message A {}', "line 1: Unrecognized syntax identifier"),
    (PROTO3 + "package google.protobuf; message Any {}", "The package of a schema cannot be google.protobuf"),
    (PROTO3 + 'import "/etc/passwd"; message A {}', 'line 1: Import "/etc/passwd" cannot be used: only Google'),
    (PROTO3 + 'import public "../x.proto"; message A {}', 'Import "../x.proto" cannot be used'),
    (PROTO3 + 'import "google/protobuf/descriptor.proto"; message A {}', "only Google's well-known types"),
    (PROTO3 + 'import "schema.proto"; message A {}', "recursively imports itself"),
    (PROTO3 + "\n\nmessage A { none a = 1; }", 'line 3: "none" is not defined'),
    (PROTO3 + "message A { int32 a = 1; int32 b = 1; }", "Field number 1 has already been used"),
    (PROTO3 + "message A { int32 a = 1 [(x) = 1]; }", 'Option "(x)" unknown'),
    (PROTO3 + "message A { required int32 a = 1; }", "line 1: "), (PROTO3 + "message A {" * 200_000, "recursion limit"),
    (PROTO3 + "message A {" + "".join(f"int64 a{n} = {n};" for n in range(1, 9000)) + "}", "Message size exceeded"),
    (PROTO3 + f"message A {{ A {'a' * 2**18} = 1; }}", ""), ("\x00\xff", ""),
    ("message A { option a" + "(" * 2**17, ""),
])  # fmt: skip
def test_what_is_no_schema_is_refused_with_its_line(definition: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_descriptor(definition)
    assert told in refused.value.message
    assert "/proc" not in refused.value.message


def test_long_names_within_each_other_and_large_descriptors_are_refused() -> None:
    long = "a" * 200
    inner = "".join(f"int32 {long}{n} = {n};" for n in range(1, 1000))
    deep = "".join(f"message {long}{n} {{" for n in range(25)) + inner + "}" * 25
    with pytest.raises(InvalidInput, match="full names of its fields are too long"):
        compile_descriptor(PROTO3 + deep)
    with pytest.raises(InvalidInput, match="at most 524288 bytes when compiled"):
        ProtobufSchema(bytes(MAX_DESCRIPTOR_BYTES + 1))


@pytest.mark.parametrize(("definition", "data"), [
    ("message A { message B {" + "".join(f"int64 a{n} = {n};" for n in range(1, 4000)) + "} repeated B b = 1; }",
        b"\x0a\x00" * 500),
    ("message A { repeated A a = 1; }", b"\x0a\x00" * 100_000), ("message A { string a = 1; }", bytes(2**20)),
])  # fmt: skip
def test_data_that_takes_much_memory_is_left_to_a_worker(definition: str, data: bytes) -> None:
    schema = ProtobufSchema(compile_descriptor(PROTO3 + definition))
    with pytest.raises(OverBudget):
        schema.check(0, data, Budget(INLINE_UNITS))
    schema.check(0, b"", Budget(INLINE_UNITS))


@pytest.mark.parametrize("schema", [
    {}, {"descriptor": 1}, {"descriptor": "*"}, {"descriptor": "AAAA"}, {"descriptor": ""},
    {"descriptor": base64.b64encode(KNOWN_FILES["google/protobuf/any.proto"]).decode()},
])  # fmt: skip
def test_a_stored_schema_that_was_not_compiled_here_is_none(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        compile_schema("protobuf", schema, None)
