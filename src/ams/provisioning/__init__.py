"""Users, bindings and access lists made of what GOCDB lists (authn contract 14), through the HTTP APIs only.

listing, feed           what GOCDB answers, and how it is asked: pages, sites, TLS
naming                  what users, bindings and topics are called for an endpoint
entitled                which endpoints of a listing are to be served, and what is wrong with the others
state                   what AMS and the certificate service hold now
plan                    from both to the steps that are missing: pure, and nothing to do the second time
vanished                who was provisioned and is no longer listed, and when to take nobody away
carrying_out, access_lists
                        does the steps, each endpoint for itself
provision               one run of all that
ini                     the configuration files of the reference's scripts
"""
