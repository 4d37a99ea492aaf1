"""The benches: how fast the service is, as ratios to comparators measured in the same run.

`python -m bench` runs them; `docs/how-to/bench.md` says how to read the results.
"""
