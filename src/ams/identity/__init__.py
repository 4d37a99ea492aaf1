"""Identity: whether a signed token is valid, of an OpenID Connect issuer or of a named token's key, and its claims.

discovery      where an issuer has its keys and answers about tokens; its answers are read with care
jwks           keys as an issuer publishes them (RFC 7517)
keys           the keys of issuers: fetched, changed, and kept in files
tokens         signature, issuer, audience, times of a token (RFC 7519, 8725, 9068)
self_signed    what a program signs itself with the key of a named token, as Google's libraries do
introspection  asking the issuer about a token (RFC 7662)
verifier       from a token to whom it was issued for, and what of that is remembered; roles by group memberships

An issuer as a value, the file of issuers, and group memberships as text (AARC-G069) are in `ams.core.issuer`.
"""
