"""Distinguished names of certificates, and the normal form they are compared in (authn contract 10)."""
