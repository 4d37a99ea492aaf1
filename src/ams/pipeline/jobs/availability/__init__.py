"""The job `availability`: availability of sites and services, computed from monitoring results.

Begin with `job`; `figures` has the tables and what is computed in Spark. Without Spark, `parse` reads messages,
`documents` and `inputs` say what holds on a day, `timelines` is its algebra, and `sites` computes a site on it.
"""
