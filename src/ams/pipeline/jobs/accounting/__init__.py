"""Usage records of a federation of sites, to summaries of each month.

From the message to the record, without Spark: `envelope` (with `signatures`), `values`, `forms`, `kinds`, then `apel`,
`xml_records` and `json_records`, and all together `reader`. From records to results, with Spark: `columns`, `kept`,
`compute`, `machines`, `storage`, `sync`; what becomes of them elsewhere: `database`, `board`. The job itself: `job`.
"""
