"""Forward steps of one rank, and sampling."""

from engine.runner.model_runner import ModelRunner
from engine.runner.sampling import sample
from engine.runner.tuning import Tuning

__all__ = ["ModelRunner", "Tuning", "sample"]
