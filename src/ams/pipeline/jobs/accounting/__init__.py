"""Usage records of a federation of sites, to summaries of each month.

job          the job: keeping the records, computing months, writing them
columns      what each table holds
summaries    from records to results, in Spark
database     results in PostgreSQL

Without Spark:

reader                    from a message to its records, whatever syntax they come in
envelope, signatures      what a message travels in, and who signed it
forms, kinds              how a record is read by its form, and the tables of all forms
values                    how a value is read
"""
