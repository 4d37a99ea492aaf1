"""Certificates of clients: whether one is to be believed now, and whom it names (contract 9 and 10).

checks          all of it, in its order, remembered for a minute
refusals        what is said, and how refusals are counted
reading         a certificate's fields, read once and carefully
trust           the folder of authorities and their lists, read again on change
chain           from a certificate to an authority that is trusted
strength        how certificates must be signed, and how long their keys must be
usage           what a certificate may be used for
proxies         certificates that users sign for themselves
subject         what the normal form of a subject cannot say
hosts           whether a client's address is one of its certificate's names
revocation/     whether a certificate was withdrawn: lists on disk, lists by URL, OCSP
"""
