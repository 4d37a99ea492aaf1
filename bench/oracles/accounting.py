"""The records of accounting and the sums of jobs, in DuckDB's SQL over a table `texts` with a column `text`."""

RECORDS = """
    CREATE TABLE records AS
    SELECT split_part(text, chr(10), 1) AS first,
           map_from_entries([(split_part(line, ': ', 1), nullif(nullif(split_part(line, ': ', 2), 'NULL'), ''))
                             FOR line IN string_split(record, chr(10)) IF contains(line, ': ')]) AS said
    FROM (SELECT text, unnest(string_split(substr(text, instr(text, chr(10)) + 1), '%%')) AS record FROM texts)
    WHERE text LIKE 'APEL-%' AND record LIKE '%: %'
"""
"""Makes the table `records`: the first line of a message, and what a record of it says."""
JOBS = """
    WITH every AS (
        SELECT DISTINCT said['Site'] AS site, said['SubmitHost'] AS submit_host, said['LocalJobId'] AS job_id,
               said['EndTime']::BIGINT AS ended, split_part(said['FQAN'], '/', 2) AS vo, said['GlobalUserName'] AS user,
               nullif(split_part(said['FQAN'], '/', 3), 'Role=NULL') AS vo_role,
               said['Processors']::BIGINT AS processors,
               said['WallDuration']::BIGINT AS wall, said['CpuDuration']::BIGINT AS cpu,
               said['ServiceLevelType'] AS benchmark, said['ServiceLevel']::DECIMAL(10, 3) AS level
        FROM records WHERE first LIKE 'APEL-individual%' AND said['WallDuration']::BIGINT >= 0
    ), summed AS (
        SELECT strftime(make_timestamp(ended * 1000000), '%Y-%m') AS month, site, submit_host, vo, user, vo_role,
               processors, benchmark, level, count(*) AS jobs, min(ended) AS first_end, max(ended) AS last_end,
               sum(wall)::BIGINT AS wall, sum(cpu)::BIGINT AS cpu
        FROM every GROUP BY ALL
    )
    SELECT * EXCLUDE (level),
           round(wall::DECIMAL(18, 0) * level * if(benchmark = 'si2k', 0.004, 1.000)::DECIMAL(4, 3))::BIGINT AS by_level
    FROM summed ORDER BY ALL
"""
"""Of `records`, the summaries of jobs."""
