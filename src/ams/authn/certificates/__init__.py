"""Certificates of clients: whether one is to be believed now, and whom it names (contract 9 and 10).

checks      all of it, in its order, remembered for a minute
reading     a certificate's fields, read once and carefully; how refusals are counted
trust       the folder of authorities and their lists, read again on change
chain       from a certificate to an authority that is trusted; dates, signatures, keys and usage
hosts       whether a client's address is one of its certificate's names
revocation  whether a certificate was withdrawn: `crls` are lists on disk and by URL, `ocsp` asks responders
subjects    what of a subject a login needs, and what its normal form cannot say
"""
