"""The data pipeline: topics as DataFrames, and jobs over them, on Spark (extra `spark`).

Rooms, from the ground up; each imports only what stands before it:

- `errors`, `messages`, `columns`, `report`: what may go wrong, the columns every message has, pages with plots;
- `options`, `service`, `source`, `sink`, `datasource`: `format("ams")`, which `pyspark_ams` registers with Spark;
- `java`, `session`, `parsing`, `tables`, `postgres`: sessions, broken messages, and tables that batches are written to
  exactly once;
- `checkpoint`, `progress`, `failures`, `running`: one job, at work in its folder, and what it tells;
- `jobs`: what is computed, as functions from DataFrames to DataFrames and a few lines that read and write;
- `expressions`, `definition`: pipelines that people write down as YAML, checked before Spark starts;
- `starting`: from what is to be run to its end;
- `archiving`: `ams archive`, without Spark.

It depends on the client and on values, never on the service's engines; a job runs wherever Spark runs.
"""
