"""What is declared is compared with what there is, and made: of files, or of what GOCDB lists; by the HTTP APIs only.

declared                what can be declared, and the steps of a plan, as values
document, fields        what files of `ams apply` declare
parallel                options of parallel subscriptions there: read, shown and sent
state                   what AMS and the certificate service hold now
plan                    from both to the steps that are missing: pure, and nothing to do the second time
carrying_out            does the steps; one that fails ends all, or only those of the same owner
gocdb                   what GOCDB answers, and how it is asked: pages, sites, TLS
endpoints               which endpoints of a listing are to be served, and what is made for them is called
declaring               what served endpoints declare, what vanished, and when nothing is removed
provision               one run of all that for GOCDB (authn contract 14)
"""
