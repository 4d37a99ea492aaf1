"""Declared resources are compared with existing ones, and made: of files, or of GOCDB's listings; by HTTP APIs only.

declared                declarations, and the steps of a plan, as values
document                files of `ams apply`
parallel                options of parallel subscriptions there: read, shown and sent
plan                    resources of AMS and the certificate service, and the steps that are missing: pure
carrying_out            does the steps; one that fails ends all, or only those of the same owner
gocdb                   answers of GOCDB, and how it is asked: pages, sites, TLS
endpoints               served endpoints of a listing, what they declare, what vanished, and when nothing is removed
provision               one run of all that for GOCDB (authn contract 14)
"""
