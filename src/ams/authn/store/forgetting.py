"""What nodes tell each other to forget of the certificate service's tables."""

from ams.storage.database.invalidation import Forget

TYPES = "authn_types"
"""Everything: service types are few and seldom change, and all else hangs on them."""
METHODS = "authn_methods"
"""All auth methods."""
BINDING = "authn_binding"
"""A binding; key: its `login`."""

FORGET_TYPES = Forget(TYPES, ())
FORGET_METHODS = Forget(METHODS, ())
