"""Revocation: whether a certificate was withdrawn before its time (contract 9.2; 15, A10 and A11).

lists       a list of withdrawn certificates (CRL), read and indexed
fetched     lists by URL, kept until they end, and fetched again before
responders  OCSP: asking a CA about one certificate
status      from a chain to what is known of each certificate in it, and what is done when it is not known
doubts      why it is not known
"""
