"""The job `accounting`: usage records of a federation of sites, to summaries of each month.

Begin with `job`; `columns` are the tables, `summaries` the figures. Without Spark, `reader` reads messages by
`envelope` and `signatures`, and the records in them by `forms`, `kinds` and `values`.
"""
