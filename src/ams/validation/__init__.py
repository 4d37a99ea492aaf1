"""Validation: checks payloads (JSON, Avro, Protocol Buffers) and attributes of messages against schemas (contract 15).

- compiled: one revision of a schema, ready to check payloads and attributes
- json_schema: payloads in JSON, against JSON Schema
- references: targets of a `$ref`, within its schema only
- avro: payloads in Avro, binary or in Avro's JSON encoding
- protobuf: payloads in Protocol Buffers, binary or in their JSON encoding
- protobuf_compiler: compiles definitions in Protocol Buffers by protoc, in a worker
- cost: estimates the cost of a check before it runs
- long_checks: slow checks, in worker processes (`ams.workers`)
- violations: error texts of a message, as the contract words them

Each revision of a schema is compiled once. Nothing is fetched from other hosts. The work for any schema and message is
bounded: see `cost`, `long_checks` and `avro`.
"""
