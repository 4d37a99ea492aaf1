"""The data pipeline on a day of five worlds: `python -m demo.pipeline`, or `make pipeline-demo`.

It starts the service and a cluster of Spark. It publishes made-up messages of accounting, monitoring, alarms, clouds
and a federation, with late, doubled and broken ones. The jobs run on the cluster and write their results to Delta
tables. Some messages are held back until two jobs have reported the day, so that a page with plots can compare their
results before and after. Page and tables stay in the folder of the demo.

Read it in this order: `worlds` (the messages and the jobs, one after the other), `page`.
"""
