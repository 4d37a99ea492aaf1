"""Identity: verifies signed tokens of OpenID Connect issuers and of named tokens' keys, and reads their claims.

- issuers: requests to issuers: URLs of their keys, and token introspection (RFC 7662)
- issuer_keys: fetches, rotates and stores the keys of issuers (RFC 7517)
- tokens: checks signature, issuer, audience and times of a token (RFC 7519, 8725, 9068)
- self_signed: tokens that a program signs with the key of a named token, as Google's libraries do
- verifier: maps a token to its person, cached; maps group memberships to roles

`ams.core.issuer` has issuers as values, the file of issuers, and group memberships as text (AARC-G069).
"""
