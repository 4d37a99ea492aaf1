"""Validation: whether messages are what a schema says (contract 15), for payloads in JSON and Avro and for attributes.

A schema is compiled once for each of its revisions and then checks every message. Nothing is fetched from
other hosts, and the work for any schema and any message is bounded: see `limits`, `effort` and `avro`.
"""

from ams.validation.compiled import Compiled, compile_schema, compile_stored, parsed

__all__ = ["Compiled", "compile_schema", "compile_stored", "parsed"]
