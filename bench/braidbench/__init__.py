"""Parts of the benchmark runner. `bench/run.py` is the only entry."""
