"""Tests, the demo, the benchmarks and the generator of the reference pages; run from the project root."""
