"""Logging in with tokens of an issuer, and with tokens that may do little: `make identity-demo`.

`ams serve` runs beside an OpenID Connect issuer, whose tokens it accepts by a file. Three publish: Alice by a signed
token of the issuer, whose first login makes her a user with the role that her entitlement gives; Carol by an opaque
token, which the issuer is asked about, as the user she is bound to; and a sensor with the official client library
as before, by a named token that is good for publishing to one topic. The issuer changes its keys, and Alice goes on
with a new token. A collector pulls what they published. Then others try, with tokens that are forged, expired, revoked,
or good for something else.

Read it in this order: `tenancy` (the issuer, users, tokens), `working` (publishing, pulling), `trying` (being refused).
"""
