"""Identity: whether a signed token is valid, of an OpenID Connect issuer or of a named token's key, and its claims.

issuers      requests to issuers: where their keys are, and about tokens (RFC 7662)
keys         the keys of issuers (RFC 7517): fetched, changed, and kept in files
tokens       signature, issuer, audience, times of a token (RFC 7519, 8725, 9068)
self_signed  tokens that a program signs itself with the key of a named token, as Google's libraries do
verifier     from a token to the person it was issued for, cached; roles by group memberships

An issuer as a value, the file of issuers, and group memberships as text (AARC-G069) are in `ams.core.issuer`.
"""
