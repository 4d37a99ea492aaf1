"""Identity: whether a token of an OpenID Connect issuer is to be believed, and what it says.

issuer         an issuer whose tokens are accepted, as a value; `file` reads the file of them
entitlements   group memberships as text (AARC-G069); `mapping` makes roles of them
answers        what issuers answer, read with care
discovery      where an issuer has its keys and answers about tokens
jwks           keys as an issuer publishes them (RFC 7517); `keys` fetches and changes them, `kept_keys` are files
tokens         signature, issuer, audience, times of a token (RFC 7519, 8725, 9068)
introspection  asking the issuer about a token (RFC 7662)
verifier       from a token to whom it was issued for, and what of that is remembered
"""
