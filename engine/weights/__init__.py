"""Local model folders (Hugging Face layout) and GGUF files: checked, read, converted, identified."""

from engine.weights.checkpoint import Checkpoint
from engine.weights.config import ModelConfig, RopeScaling
from engine.weights.convert import convert
from engine.weights.deepseek_config import CompressedConfig, IndexConfig, MlaConfig
from engine.weights.digest import model_digest
from engine.weights.moe_config import MoeConfig
from engine.weights.resolve import resolve

__all__ = [
    "Checkpoint",
    "CompressedConfig",
    "IndexConfig",
    "MlaConfig",
    "ModelConfig",
    "MoeConfig",
    "RopeScaling",
    "convert",
    "model_digest",
    "resolve",
]
