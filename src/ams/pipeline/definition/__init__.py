"""Definition files of pipelines (docs/reference/pipeline.md): YAML that is checked whole before Spark starts.

`plans.read_plan` reads one. `payloads` runs in tasks of Spark, which import nothing else of this package.
"""
