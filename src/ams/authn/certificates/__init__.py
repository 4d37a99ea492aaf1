"""Certificates of clients: whether one is to be believed now, and whom it names (contract 9 and 10).

checks      all of it, in its order, remembered for a minute; whether the client's address has a name of the certificate
der         DER that the library refuses and OpenSSL reads: odd texts in names
reading     a certificate's fields, names and subject, read once and carefully; how refusals are counted
trust       the folder of authorities, read again on change; chains to an authority; dates, signatures, keys and usage
revocation  whether a certificate was withdrawn: `crls` are lists on disk and by URL; OCSP responders
"""
