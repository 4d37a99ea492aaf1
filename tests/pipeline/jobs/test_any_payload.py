"""A job reads any payload or quarantines it with a reason: no stranger's message ends a run."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from datetime import date
from functools import partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs import alarm_messages, federation_messages
from ams.pipeline.jobs.accounting import reader
from ams.pipeline.jobs.accounting.envelope import EnvelopeTrust
from ams.pipeline.jobs.availability.parse import parse_lists, parse_results
from ams.pipeline.jobs.cloud.parse import parse as parse_cloud
from ams.pipeline.message_parser import Parse
from demo.pipeline.samples import NONE, Sample, accounting, alarms, cloud, federation, monitoring
from tests.pipeline.jobs.accounting import texts

DAY = date(2024, 3, 5)
ADDRESSES = {"Type": "APEL Public IP message", "Version": "0.2", "UsageRecords": [texts.ADDRESS]}
ACCOUNTING_TEXTS = [
    texts.text(texts.INDIVIDUAL, texts.JOB), texts.text(texts.CLOUD, texts.VM), texts.STAR, texts.CAR,
    json.dumps(ADDRESSES), json.dumps([texts.ENERGY]),
]  # fmt: skip


def first_samples(samples: Iterable[Sample]) -> list[Sample]:
    return list(islice(samples, 40))


JOBS: dict[str, tuple[Parse, list[Sample]]] = {
    "accounting": (
        partial(reader.parse, trust=EnvelopeTrust(), now=texts.NOW),
        [Sample("t", text.encode()) for text in ACCOUNTING_TEXTS]
        + first_samples(accounting.messages(1, DAY, sites=1, jobs=20, machines=2, encrypted=0.5)),
    ),
    "alarms": (alarm_messages.parse, first_samples(alarms.messages(1, DAY, sites=2))),
    "availability": (partial(parse_results, shape="current"), first_samples(monitoring.results(1, DAY, sites=1))),
    "availability, lists": (
        partial(parse_lists, report="Default"),
        first_samples(monitoring.sync_messages(1, DAY, sites=1)),
    ),
    "cloud-info": (parse_cloud, first_samples(cloud.messages(1, DAY, images=2, mishaps=NONE))),
    "federation": (federation_messages.parse, first_samples(federation.messages(1, DAY))),
    "federation, kept out": (
        lambda data, _: [{"data": federation_messages.redact_payload(data)}],
        first_samples(federation.messages(1, DAY)),
    ),
}
"""Readers of a job's messages, and some of the messages."""
WORDS = st.text(max_size=5) | st.sampled_from(["2024-03-05T10:20:30Z", "9999-12-31", "1e999", "-1", "PT1S", "\ud800"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([2**64, 10**400]) | st.floats() | WORDS,
    lambda values: st.lists(values, max_size=2) | st.dictionaries(WORDS, values, max_size=2),
)
BYTES = st.binary(max_size=40) | VALUES.map(lambda value: str(value).encode("utf-8", "surrogatepass"))


@given(st.data())
@pytest.mark.parametrize("job", JOBS)
def test_any_payload_is_read_or_broken(job: str, data: st.DataObject) -> None:
    parse, samples = JOBS[job]
    sample = data.draw(st.sampled_from(samples))
    attributes = dict(sample.attributes) | data.draw(
        st.dictionaries(st.sampled_from([*sample.attributes, "type", "partition_date"]), WORDS, max_size=1)
    )

    with contextlib.suppress(Broken):
        for record in parse(data.draw(spoilt_payloads(sample.data)), attributes):
            assert isinstance(record, Broken | Mapping)


def spoilt_payloads(data: bytes) -> st.SearchStrategy[bytes]:
    at = st.integers(0, len(data))
    cut = st.builds(lambda begin, new, end: data[: min(begin, end)] + new + data[max(begin, end) :], at, BYTES, at)
    with contextlib.suppress(ValueError):
        cut |= changed_documents(json.loads(data)).map(lambda value: json.dumps(value).encode())
    return cut | BYTES | st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000, b"<a>" * 10_000])


@st.composite
def changed_documents(draw: st.DrawFn, value: Any) -> Any:
    """Return a document with one value replaced, at any depth."""
    if not value or not isinstance(value, dict | list) or not draw(st.integers(0, 4)):
        return draw(VALUES)
    copy = value.copy()
    key = draw(st.sampled_from(sorted(copy) if isinstance(copy, dict) else range(len(copy))))
    copy[key] = draw(changed_documents(copy[key]))
    return copy
