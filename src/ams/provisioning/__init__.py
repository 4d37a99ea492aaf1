"""Makes declared resources (from files, or GOCDB's listings) through the HTTP APIs.

declarations            declarations and plan steps, as values
document                files of `ams apply`
plan                    compares declared and existing resources, and returns the missing steps: pure
execution               does the steps; a failure ends all, or only those of the same owner
gocdb                   requests to GOCDB: pages, sites, TLS
endpoints               listed endpoints: which are served, their declarations, and removals
provision               one run for GOCDB (authn contract 14)
"""
