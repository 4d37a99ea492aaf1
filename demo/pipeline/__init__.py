"""The data pipeline on a day of five worlds: `python -m demo.pipeline`, or `make pipeline-demo`.

The service and a cluster of Spark are started, and made-up messages of accounting, monitoring, alarms, clouds and a
federation are published, late, doubled and broken ones among them. The jobs run on the cluster and keep what they find
in Delta tables. Some messages are held back until two jobs have told of the day, so that a page with plots can show
what they said then beside what they say now. Page and tables stay in the folder of the demo.

Read it in this order: `worlds` (what is published, and the jobs, one after the other), `page`.
"""
