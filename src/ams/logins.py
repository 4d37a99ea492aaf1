"""Logins by tokens of issuers: from a token to the user it is bound to, who may be made at the first login."""
