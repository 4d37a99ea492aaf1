"""Which copies the schema of their topic refuses: found by the service's own rules before anything is published.

A request holds many messages, and the service refuses it whole. So what it would refuse is taken out before, by the
schemas as they are when a batch begins. What a schema refuses that was attached meanwhile ends the run, and the next
one finds it.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from ams.client import wire
from ams.client.errors import NotAllowed, NotFound
from ams.pipeline.jobs.schema_check.rules import Rules, rules_named
from ams.pipeline.jobs.schema_check.verdicts import Verdicts
from ams.pipeline.options import Given
from ams.pipeline.running import Source
from ams.pipeline.service import Service


def rules_of(source: Source, topics: Iterable[str]) -> dict[str, Rules]:
    """Ask what messages of topics must be, where anything is asked of them; raise a `ClientError`.

    Of topics that are not there yet, or schemas that may not be seen, nothing is known: publishing will tell.
    """
    access, project = Given(source).access(os.environ)
    found = {}
    with Service(access) as service:
        for topic in topics:
            try:
                schema = service.call(wire.get_topic(project or "", topic)).schema
                if schema:
                    _, owner, _, name = schema.split("/")
                    found[topic] = rules_named(service, owner, name)
            except (NotFound, NotAllowed):
                continue
    return found


def fitting(copies: DataFrame, rules: Mapping[str, Rules], attributes: Column) -> DataFrame:
    """Return the copies of `routed`; those that their topic would refuse go nowhere, and say why.

    `attributes` are those they are published with.
    """

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            verdicts = {topic: stack.enter_context(Verdicts(each)) for topic, each in rules.items()}
            for batch in batches:
                yield _judged(batch, verdicts)

    return copies.withColumn("sent", attributes).mapInArrow(judge, copies.schema)


def _judged(batch: pa.RecordBatch, verdicts: Mapping[str, Verdicts]) -> pa.RecordBatch:
    columns = {name: batch.column(name) for name in batch.schema.names if name != "sent"}
    to, reasons = columns["to"].to_pylist(), columns["reason"].to_pylist()
    rows = zip(
        columns["offset"].to_pylist(), columns["data"].to_pylist(), batch.column("sent").to_pylist(), strict=True
    )
    for number, (offset, data, sent) in enumerate(rows):
        refusal = _refusal(verdicts.get(to[number]), offset, data, sent)
        if refusal is not None:
            to[number], reasons[number] = None, f"topic {to[number]} refuses it: {refusal}"
    columns["to"] = pa.array(to, columns["to"].type)
    columns["reason"] = pa.array(reasons, columns["reason"].type)
    return pa.RecordBatch.from_pydict(columns)


def _refusal(verdicts: Verdicts | None, offset: int, data: bytes | None, sent: Any) -> str | None:
    return None if verdicts is None else verdicts.refusal(offset, data or b"", dict(sent or ()))
