"""Push: reaching endpoints of others over https, safely."""
