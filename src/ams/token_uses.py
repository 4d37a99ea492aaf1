"""When named tokens were last used: noted in memory, written now and then."""
