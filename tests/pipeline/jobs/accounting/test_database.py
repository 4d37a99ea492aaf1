"""The tables of results in PostgreSQL."""

from contextlib import closing

import psycopg

from ams.pipeline.jobs.accounting.database import TABLES, prepared


def test_a_table_of_before_is_given_the_columns_it_lacks_and_keeps_its_rows(
    database: str,
) -> None:
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("CREATE TABLE accounting_site_summaries (month text, site text)")
        connection.execute("INSERT INTO accounting_site_summaries VALUES ('2024-03', 'SITE-A')")

        prepared("")
        prepared("")

        found = connection.execute("SELECT * FROM accounting_site_summaries")
        assert {each.name for each in found.description or ()} == set(TABLES["site_summaries"].names)
        assert [row[:2] for row in found.fetchall()] == [("2024-03", "SITE-A")]
