"""The data pipeline: topics as DataFrames, and jobs over them, on Spark (extra `spark`).

`docs/explanation/pipeline.md` shows its rooms, and why the numbers stay right.
It depends on the client and on values, never on the service's engines; a job runs wherever Spark runs.
"""
