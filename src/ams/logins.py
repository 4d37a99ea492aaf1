"""Logins by tokens of issuers: from a token to the user it is bound to, made at the first login where that is allowed."""
