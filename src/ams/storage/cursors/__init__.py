"""Where each subscription stands: the promise (`base`), the rules as a pure value (`state`), and the keepers."""
