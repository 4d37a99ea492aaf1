"""Parts of the demo's page, made from the results of the jobs."""
