"""Validation: whether messages match a schema (contract 15), for payloads in JSON and Avro and for attributes.

compiled             one revision of a schema, ready to check payloads and attributes
json_schema          payloads in JSON, against JSON Schema
references           targets of a `$ref`: within its schema only
avro                 payloads in Avro, binary or in Avro's JSON encoding
protobuf             payloads in Protocol Buffers, binary or in their JSON encoding
protobuf_compiler    descriptors of definitions in Protocol Buffers, by protoc in a worker
cost                 the cost of a check, counted before it is done
long_checks          checks that may take long, by worker processes (`ams.workers`)
violations           errors of a message, in the words of the contract

A schema is compiled once for each of its revisions and then checks every message. Nothing is fetched from
other hosts, and the work for any schema and any message is bounded: see `cost`, `long_checks` and `avro`.
"""

from ams.validation.compiled import Compiled, compile_schema, compile_stored

__all__ = ["Compiled", "compile_schema", "compile_stored"]
