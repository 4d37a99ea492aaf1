"""The main result of each of EGI's jobs without Spark, by one process: DuckDB, or numpy for availability.

`python -m bench.without_spark` reads a `Question` on stdin and answers on stdout, so that its memory is its own.
Nothing is set aside, kept or replaced here: it reads topics whole, and says how large the result is, which the job's
must be too.
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping

import duckdb
import msgspec
import pyarrow as pa

from bench.numbered import ranges
from bench.oracles.accounting import JOBS, RECORDS
from bench.oracles.availability import day_figures
from demo.pipeline.samples import Sample


class Question(msgspec.Struct):
    """Which job, and where its messages are."""

    job: str
    url: str
    token: str
    topics: list[str]
    day: str
    files: dict[str, str] = {}
    """Of availability: profiles and topology."""


class Answer(msgspec.Struct):
    """How large the result is, and what it took."""

    rows: int
    seconds: float
    memory: int


def main() -> None:
    """Answer the question."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    began = time.perf_counter()
    rows = JOBS_BESIDE[asked.job](asked)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.buffer.write(msgspec.json.encode(Answer(rows, seconds, memory)))


def messages(asked: Question) -> pa.Table:
    """Return all messages: `topic`, `offset`, `publish_time` and `data`."""
    found = []
    for topic in asked.topics:
        for batch in ranges(asked, topic):
            named = pa.array([topic.rpartition("/")[2]] * batch.num_rows)
            columns = {name: batch.column(name) for name in ("offset", "publish_time", "data")}
            found.append(pa.RecordBatch.from_pydict({"topic": named, **columns}))
    return pa.Table.from_batches(found)


def by_duckdb(asked: Question, *steps: str) -> int:
    """Let DuckDB take all steps over the table `messages`; return the one number that the last is."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("messages", messages(asked))
        for step in steps:
            found = connection.execute(step).fetchall()
    [(rows,)] = found
    return int(rows or 0)


TEXTS = "CREATE TABLE texts AS SELECT TRY(decode(data)) AS text FROM messages"

TOLD = """
    CREATE TABLE told AS
    SELECT *, CASE WHEN json_type(said) = 'OBJECT' THEN said END AS j
    FROM (SELECT * EXCLUDE (data), TRY_CAST(TRY(decode(data)) AS JSON) AS said FROM messages)
"""
"""Messages of JSON; `j` is null for what is none."""

REPORTS = """
    CREATE TABLE reports AS
    SELECT * FROM (
        SELECT 'alarm' AS kind, '' AS report, 'metric' AS level, (j->>'site') AS site,
               (j->>'service_flavour') AS service, (j->>'node_name') AS hostname, (j->>'test_name') AS metric,
               TRY_CAST(j->>'execution_time' AS TIMESTAMPTZ) AS seen, (j->>'status') AS status,
               (j->>'details') AS details, topic, "offset", publish_time
        FROM told WHERE topic = 'alarms'
        UNION ALL
        SELECT 'event', (j->>'report'), (j->>'type') AS level, (j->>'endpoint_group'),
               if(level IN ('service', 'endpoint', 'metric'), (j->>'service'), ''),
               if(level IN ('endpoint', 'metric'), (j->>'hostname'), ''), if(level = 'metric', (j->>'metric'), ''),
               TRY_CAST(j->>'ts_monitored' AS TIMESTAMPTZ), (j->>'status'), (j->>'summary'), topic, "offset",
               publish_time
        FROM told WHERE topic = 'status_events'
        UNION ALL
        SELECT 'alert', (j->>'environment'), replace(j->>'event', '_status', '') AS level, (a->>'_group'),
               if(level IN ('service', 'endpoint', 'metric'), (a->>'_service'), ''),
               if(level IN ('endpoint', 'metric'), (a->>'_endpoint'), ''), if(level = 'metric', (a->>'_metric'), ''),
               TRY_CAST(a->>'_ts_monitored' AS TIMESTAMPTZ), upper(j->>'severity'), (a->>'_mon_summary'), topic,
               "offset", publish_time
        FROM (SELECT *, (j->'attributes') AS a FROM told WHERE topic = 'alerts')
    ) WHERE seen IS NOT NULL AND status <> 'BURNING'
"""
HISTORY = """
    CREATE TABLE history AS
    SELECT kind, report, level, site, service, hostname, metric, seen, status,
           arg_max(details, (publish_time, topic, "offset")) AS details
    FROM reports GROUP BY ALL
"""
ALARMS = """
    CREATE TABLE alarms AS
    SELECT kind, report, level, site, service, hostname, metric, arg_max(status, seen) AS status,
           min(seen) AS first_seen, max(seen) AS last_seen, count(*) AS reports, arg_max(details, seen) AS details,
           count(*) FILTER (status IS DISTINCT FROM before) - 1 AS changes
    FROM (SELECT *, lag(status) OVER (PARTITION BY kind, report, level, site, service, hostname, metric ORDER BY seen)
          AS before FROM history)
    GROUP BY ALL
"""

VERSIONS = """
    CREATE TABLE versions AS
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY "offset") AS version FROM (
        SELECT *, lag(wanted) OVER (PARTITION BY id ORDER BY "offset") AS before FROM (
            SELECT TRY_CAST(j->'id' AS BIGINT) AS id, publish_time, "offset", (j->>'deployment_type') AS kind,
                   json_merge_patch(j, '{"client_secret": null}')::VARCHAR AS wanted
            FROM told WHERE (j->>'deployment_type') IN ('create', 'edit', 'delete') AND json_type(j->'id') <> 'VARCHAR'
        )
    ) WHERE wanted IS DISTINCT FROM before
"""
STATES = """
    CREATE TABLE states AS
    SELECT v.id, version, any_value(kind) AS kind, arg_max(a.state, a.answered) AS state, max(a.answered) AS answered
    FROM (
        SELECT TRY_CAST(j->'id' AS BIGINT) AS id, (j->>'state') AS state, publish_time AS answered
        FROM told WHERE (j->>'state') IN ('deployed', 'error') AND topic LIKE '%results'
    ) AS a ASOF JOIN versions AS v ON a.id = v.id AND a.answered >= v.publish_time
    GROUP BY ALL
"""

LATEST = r"""
    WITH latest AS (
        SELECT topic, arg_max(data, (publish_time, "offset")) AS text
        FROM (SELECT topic, publish_time, "offset", TRY(decode(data)) AS data FROM messages)
        WHERE length(data) > 500 AND NOT regexp_matches(data, 'no colon|hello|,X=|: X=|"Id"|_ie') GROUP BY 1
    )
    SELECT sum(len(list_distinct(regexp_extract_all(text, '[0-9a-f]{8}-0f93-48da-b0eb-[0-9a-f]{12}')))) FROM latest
"""


def accounting(asked: Question) -> int:
    """Return how many jobs all sums are of."""
    sums = f"SELECT sum(jobs) FROM ({JOBS})"
    return by_duckdb(asked, TEXTS, RECORDS, sums)


def availability(asked: Question) -> int:
    """Return how many figures a day has."""
    from datetime import date

    samples = (Sample("metric_data", data) for data in messages(asked).column("data").to_pylist())
    return len(day_figures(samples, asked.files, date.fromisoformat(asked.day)))


def alarms(asked: Question) -> int:
    """Return how many reports there were, each once."""
    return by_duckdb(asked, TOLD, REPORTS, HISTORY, ALARMS, "SELECT sum(reports) FROM alarms")


def cloud_info(asked: Question) -> int:
    """Return how many images the latest descriptions have."""
    return by_duckdb(asked, LATEST)


def federation(asked: Question) -> int:
    """Return how many versions of configurations there are."""
    return by_duckdb(asked, TOLD, VERSIONS, STATES, "SELECT count(*) FROM versions")


JOBS_BESIDE: Mapping[str, Callable[[Question], int]] = {
    "accounting": accounting,
    "availability": availability,
    "alarms": alarms,
    "cloud-info": cloud_info,
    "federation": federation,
}

if __name__ == "__main__":
    main()
