"""The job `availability`: how well sites and their services could be reached, by what monitoring found.

Begin with `job`; `figures` has the tables and what is computed in Spark. Without Spark, `parse` reads messages,
`documents` and `inputs` say what holds on a day, `timelines` is its algebra, and `sites` computes a site on it.
"""
