"""The data pipeline: topics as DataFrames, and jobs over them, on Spark (extra `spark`).

Rooms, from the ground up; each imports only what stands before it:

- `errors`, `columns`: what may go wrong, and the columns every message has;
- `options`, `service`, `source`, `sink`, `datasource`: `format("ams")`, which `pyspark_ams` registers with Spark;
- `session`, `io`, `parsing`, `tables`, `postgres`: sessions, reading, broken messages, folders and tables that batches
  are written to exactly once;
- `running`: one job at work; `checkpoint`, `progress`, `failures`: its folder, how far it is, what ended it;
- `samples`: made-up messages in the shape of real ones; `report`: pages with plots;
- `jobs`: what is computed, as functions from DataFrames to DataFrames and a few lines that read and write;
- `expressions`, `payloads`, `steps`, `sinks`, `flow`, `definition`: pipelines that people write down as YAML;
- `plan`, `starting`: what is to be run, a job or a definition, and its run from the folder's lock to the last line.

It depends on the client and on values, never on the service's engines; a job runs wherever Spark runs.
"""
