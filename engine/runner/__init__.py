"""Forward steps of one rank, and sampling."""

from engine.runner.model_runner import ModelRunner
from engine.runner.sampling import sample

__all__ = ["ModelRunner", "sample"]
