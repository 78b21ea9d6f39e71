"""The tensor-parallel prefill/decode engine and its router. Never imports pdctl."""

__version__ = "0.1.0"
