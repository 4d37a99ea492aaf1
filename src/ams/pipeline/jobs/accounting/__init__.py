"""The job `accounting`: usage records of a federation of sites, to summaries of each month.

Begin with `job`; `summaries` has the tables and the figures. Without Spark, `reader` reads messages by `envelope`, and
the records in them by `record_formats` and `values`.
"""
