"""Small decoders of further families of transformers."""

from typing import Any

from pockengine.tests.zoo.zoo_language import GROUPED

MIXTURE = {"num_local_experts": 2, "num_experts_per_tok": 1}
ROUTED = {
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
UNDROPPED = {"attention_dropout": 0.0, "residual_dropout": 0.0}
FURTHER: dict[str, dict[str, Any]] = {
    **{name: {} for name in ("Bloom", "Falcon", "Mpt", "OPT")},
    **dict.fromkeys(("Apertus", "Arcee", "BitNet", "Cohere", "Cohere2", "Ernie4_5"), GROUPED),
    **dict.fromkeys(("Exaone4", "Glm", "Glm4", "Helium", "HunYuanDenseV1", "Nemotron"), GROUPED),
    **dict.fromkeys(("Olmo2", "Olmo3", "StableLm", "Starcoder2"), GROUPED),
    **{name: {**GROUPED, **ROUTED} for name in ("Dots1", "Glm4Moe")},
    "DeepseekV3": {**ROUTED, **LATENT},
    "MiniMax": {**GROUPED, **MIXTURE},
    "Olmoe": {**GROUPED, "num_experts": 2, "num_experts_per_tok": 1},
    "Qwen2Moe": {**GROUPED, **ROUTED, "num_experts": 2, "shared_expert_intermediate_size": 16},
    "SeedOss": {**GROUPED, **UNDROPPED},
}
"""Settings by family: those that no other test names."""
