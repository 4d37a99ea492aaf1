"""The data pipeline on a day of five worlds: `python -m demo.pipeline`, or `make pipeline-demo`.

The service is started in a folder of its own, made-up messages of accounting, monitoring, alarms, clouds and a
federation are published to it, late, doubled and broken ones among them, the jobs run, and a page with plots shows what
they found.

Read it in this order: `worlds` (what is published, and the jobs), `feeding`, `working` (job after job), `page`.
"""
