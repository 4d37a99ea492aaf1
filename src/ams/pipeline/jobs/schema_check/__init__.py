"""Which archived messages a schema would have refused. The job `schema-check`."""
