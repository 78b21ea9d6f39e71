"""Tests on booted hosts, and the harness that boots them."""
