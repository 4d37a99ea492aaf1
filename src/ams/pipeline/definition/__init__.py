"""Definition files of pipelines (docs/reference/pipeline.md): YAML, validated before Spark starts.

`plans.read_plan` reads a file. `payloads` runs in Spark tasks, which import nothing else of this package.
"""
