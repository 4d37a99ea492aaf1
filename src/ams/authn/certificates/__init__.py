"""Certificates of clients: validates them and reads their subjects (contract 9 and 10).

- validation: all checks in order, cached for a minute; compares the client's host with the certificate
- der: DER that the library refuses and OpenSSL reads: odd texts in names
- certificate: parses a certificate's fields, names and subject once; kinds of refusals
- trust: the folder of authorities, reloaded on change; chains, dates, signatures, keys and usage
- revocation: revoked certificates: `crls` are lists on disk and by URL; OCSP responders
"""
