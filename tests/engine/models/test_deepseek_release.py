"""DeepSeek-V4 as it was released: its ratios, its names, its config.json; V3.2's config.json as released."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.core.errors import ModelError
from engine.core.types import Slice
from engine.weights import ModelConfig
from tests.engine.models.deepseek import build_deepseek, one_thread, reference  # noqa: F401
from tests.engine.models.tiny import Ranks

PAGE = 128
KINDS = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
RATIOS = [0, 4, 128, 4]
TOKENS = torch.randint(0, 101, (420,), generator=torch.Generator().manual_seed(1)).tolist()
GLOBAL = {
    "model.embed_tokens.weight": "embed.weight",
    "model.norm.weight": "norm.weight",
    "model.hc_head.hc_fn": "hc_head_fn",
    "model.hc_head.hc_base": "hc_head_base",
    "model.hc_head.hc_scale": "hc_head_scale",
}
# What transformers writes instead.
NOT_RELEASED = (
    "layer_types",
    "mlp_layer_types",
    "compress_rates",
    "rope_parameters",
    "partial_rotary_factor",
)
YARN = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}
V32 = {
    "architectures": ["DeepseekV32ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "norm_topk_prob": True,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048, "vocab_size": 129280,
    "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000, "hidden_act": "silu",
    "attention_bias": False, "tie_word_embeddings": False, "num_nextn_predict_layers": 1, "eos_token_id": 1,
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32,
                     "beta_slow": 1, "original_max_position_embeddings": 4096},
}  # fmt: skip


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    folder = tmp_path_factory.mktemp("v4")
    model = build_deepseek(
        "deepseek_v4",
        folder,
        num_hidden_layers=len(RATIOS),
        layer_types=[KINDS[ratio] for ratio in RATIOS],
        mlp_layer_types=["hash_moe", "moe", "moe", "moe"],
        compress_rates={KINDS[4]: 4, KINDS[128]: 128},
        sliding_window=24,
    )
    want = reference(model, TOKENS)
    path = folder / "model.safetensors"
    renamed = {}
    for name, tensor in load_file(path).items():
        own = GLOBAL.get(name, name.removeprefix("model."))
        renamed[re.sub(r"^(layers\.\d+\.attn\.)norm", r"\1kv_norm", own)] = tensor
    save_file(renamed, path)
    document = json.loads((folder / "config.json").read_text())
    document = {key: value for key, value in document.items() if key not in NOT_RELEASED}
    document |= {"compress_ratios": [*RATIOS, 0], "num_hash_layers": 1, "rope_scaling": YARN}
    (folder / "config.json").write_text(json.dumps(document))
    return folder, want


def test_names_and_config_of_the_release(released: tuple[Path, torch.Tensor]) -> None:
    folder, want = released
    pages = list(range(20))
    got = Ranks(folder, 2, page_size=PAGE).run(Slice(TOKENS[:300], 0, pages, True))
    assert torch.allclose(got[0], want[299], atol=2e-4)


@pytest.mark.slow
def test_decoded_over_twice_the_release_s_largest_ratio(released: tuple[Path, torch.Tensor]) -> None:
    """Handed over in the middle of an entry of 128 tokens."""
    folder, want = released
    prefill, decode = (Ranks(folder, page_size=PAGE, pages=40) for _ in "ab")
    state = prefill.runners[0].shape.state_pages
    src, dst = list(range(state + 4)), list(range(state + 8, 4, -1))[: state + 4]
    prefill.run(Slice(TOKENS[:133], 0, src, True))
    decode.runners[0].pool.fill_(0xFF)
    decode.runners[0].pool[dst[: state + 2]] = prefill.runners[0].pool[src[: state + 2]]
    got = torch.cat([decode.run(Slice([TOKENS[p]], p, dst, True)) for p in range(133, len(TOKENS))])
    assert torch.allclose(got, want[133:], atol=2e-4)


def test_the_config_of_v32_as_released(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(V32))
    config = ModelConfig.load(tmp_path)
    assert config.mla is not None and config.moe is not None and config.rope_scaling is not None
    assert (config.parts, config.head_dim, config.mla.index.topk) == (128, 576, 2048)
    assert config.moe.layers[:4] == ("dense", "dense", "dense", "routed") and config.moe.shared == 2048
    assert config.rope_scaling.attention_factor == 1.0
    assert config.rope_scaling.logit_factor == pytest.approx(1.3689**2, abs=1e-3)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"num_experts_per_tok": 300}, "num_experts_per_tok 300 is more"),
        ({"n_group": 7}, "groups of 256 experts"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax' is not supported"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"index_head_dim": 32}, "more than index_head_dim 32"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quant_method 'gptq' is not supported"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}, "weight_block_size"),
        ({"mlp_layer_types": ["sparse"] * 3}, "mlp_layer_types is .*, not a list of 61 entries"),
        ({"rope_scaling": {"type": "yarn", "factor": 40}}, "original_max_position_embeddings"),
        ({"index_topk": 0}, "index_topk is 0"),
    ],
)
def test_values_that_cannot_be_are_one_sentence(tmp_path: Path, values: dict[str, object], text: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**V32, **values}))
    with pytest.raises(ModelError, match=text):
        ModelConfig.load(tmp_path)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"compress_ratios": [0, 4, 64, 4]}, "not a list of 0, 4 and 128 for 4 layers"),
        ({"layer_types": ["full_attention"] * 4}, "none of sliding_attention"),
        ({"o_groups": 3}, "not a multiple of o_groups 3"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7"),
        ({"scoring_func": "tanh"}, "scoring_func 'tanh' is not supported"),
    ],
)
def test_values_of_v4_that_cannot_be_are_one_sentence(
    released: tuple[Path, torch.Tensor], tmp_path: Path, values: dict[str, object], text: str
) -> None:
    document = json.loads((released[0] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**document, **values}))
    with pytest.raises(ModelError, match=text):
        ModelConfig.load(tmp_path)
