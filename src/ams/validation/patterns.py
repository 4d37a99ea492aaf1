"""Regular expressions: those of Rust, whose time is linear in the text, in a size that bounds the other factor."""

import functools

import jsonschema_rs

PATTERN_BYTES = 2**16
"""What one compiled pattern may take; it also bounds the time for each character."""
_SMALL_BYTES = 2**13
_LONG = 200
"""Characters of a pattern that is not tried as a small one."""
_CACHE_BYTES = 2**17
"""What the engine may remember of a pattern's states while it runs, for each thread."""
OPTIONS = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES, dfa_size_limit=_CACHE_BYTES)
_SMALL = jsonschema_rs.RegexOptions(size_limit=_SMALL_BYTES, dfa_size_limit=_CACHE_BYTES)

LIGHT, HEAVY = 1, 40
"""Work for four characters of a text (`ams.validation.budget`)."""


@functools.lru_cache(1000)
def work(pattern: object) -> int:
    """Return the work of a pattern, compiled or not: most are small, a large one can take a microsecond a character."""
    if not isinstance(pattern, str) or len(pattern) > _LONG:
        return HEAVY
    try:
        matcher(pattern, _SMALL)
    except ValueError:
        return HEAVY
    return LIGHT


def matcher(pattern: str, options: jsonschema_rs.RegexOptions = OPTIONS) -> jsonschema_rs.Validator:
    """Compile a pattern; raise `jsonschema_rs.ValidationError` for what is none, or too large."""
    return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options, offline=True)
