"""What a config.json does not say: the defaults of the classes that wrote it, which leave them out of the file."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer import pretrained
from transformer.core.errors import ConfigError
from transformer.core.modules import abstract, split
from transformer.functional.masks import Tokens
from transformer.mixers.mixer import Context
from transformer.models.build import pure_model
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.architectures import ARCHITECTURES
from transformer.pretrained.bamba import BAMBA
from transformer.pretrained.bart import BART
from transformer.pretrained.bert import BERT, BERT_CLASSIFIER
from transformer.pretrained.bloom import BLOOM
from transformer.pretrained.cohere import COHERE, COHERE2
from transformer.pretrained.deepseek_v3 import DEEPSEEK_V3
from transformer.pretrained.distilbert import DISTILBERT
from transformer.pretrained.falcon import FALCON
from transformer.pretrained.gemma import GEMMA
from transformer.pretrained.gemma2 import GEMMA2
from transformer.pretrained.gemma3 import GEMMA3
from transformer.pretrained.glm import GLM, GLM4
from transformer.pretrained.gpt2 import GPT2
from transformer.pretrained.gpt_bigcode import GPT_BIGCODE
from transformer.pretrained.gpt_neo import GPT_NEO
from transformer.pretrained.gpt_neox import GPT_NEOX
from transformer.pretrained.gpt_oss import GPT_OSS
from transformer.pretrained.gptj import GPTJ
from transformer.pretrained.helium import HELIUM
from transformer.pretrained.llama import LLAMA
from transformer.pretrained.mamba2 import MAMBA2
from transformer.pretrained.marian import MARIAN
from transformer.pretrained.mbart import MBART
from transformer.pretrained.mistral import MISTRAL
from transformer.pretrained.mixtral import MIXTRAL
from transformer.pretrained.modernbert import MODERNBERT
from transformer.pretrained.mpt import MPT
from transformer.pretrained.nemotron import NEMOTRON
from transformer.pretrained.olmo import OLMO, OLMO2
from transformer.pretrained.olmo_hybrid import OLMO_HYBRID
from transformer.pretrained.olmoe import OLMOE
from transformer.pretrained.opt import OPT
from transformer.pretrained.pegasus import PEGASUS
from transformer.pretrained.persimmon import PERSIMMON
from transformer.pretrained.phi import PHI
from transformer.pretrained.phi3 import PHI3
from transformer.pretrained.qwen2 import QWEN2
from transformer.pretrained.qwen3 import QWEN3
from transformer.pretrained.qwen3_moe import QWEN3_MOE
from transformer.pretrained.qwen3_next import QWEN3_NEXT
from transformer.pretrained.roberta import ROBERTA, ROBERTA_CLASSIFIER, XLM_ROBERTA, XLM_ROBERTA_CLASSIFIER
from transformer.pretrained.roformer import ROFORMER
from transformer.pretrained.smollm3 import SMOLLM3
from transformer.pretrained.stablelm import STABLELM
from transformer.pretrained.starcoder2 import STARCODER2
from transformer.pretrained.t5 import T5
from transformer.pretrained.vit import VIT
from transformer.pretrained.xlstm import XLSTM


def sizes(vocabulary: int, width: int, hidden: int, layers: int, heads: int, length: int) -> dict[str, Any]:
    """Sizes under the names that most classes give them."""
    names = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads max_position_embeddings"
    return dict(zip(names.split(), (vocabulary, width, hidden, layers, heads, length), strict=True))


ROPE = {"rope_type": "default", "rope_theta": 10_000.0}
GATED = {"hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False, "rope_parameters": ROPE}
BERT_LIKE = sizes(30_522, 768, 3072, 12, 12, 512) | {"type_vocab_size": 2, "layer_norm_eps": 1e-12}
BERT_LIKE |= {"hidden_act": "gelu"}
BART_LIKE = {"encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16, "d_model": 1024}
BART_LIKE |= {"decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16}
BART_LIKE |= {"activation_function": "gelu", "scale_embedding": False, "tie_word_embeddings": True}
BART_LIKE |= {"max_position_embeddings": 1024}
QUARTER = {"rope_parameters": ROPE | {"partial_rotary_factor": 0.25}}
HALF = {"rope_parameters": ROPE | {"partial_rotary_factor": 0.5}}
GPT2_LIKE = {"vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None}
GPT2_LIKE |= {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
SLIDING = ["sliding_attention", "full_attention"]
COHERE_LIKE = sizes(256_000, 8192, 22_528, 40, 64, 8192) | {"num_key_value_heads": None, "layer_norm_eps": 1e-5}
COHERE_LIKE |= {"logit_scale": 0.0625, "hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": True}
GLM_LIKE = GATED | sizes(151_552, 4096, 13_696, 40, 32, 131_072) | {"num_key_value_heads": 2, "head_dim": 128}
GLM_LIKE |= {"rms_norm_eps": 1.5625e-7, "attention_bias": True} | HALF

DEFAULTS: list[tuple[Architecture, set[float], dict[str, Any]]] = [
    (BERT, {1e-12}, BERT_LIKE),
    (BERT_CLASSIFIER, {1e-12}, BERT_LIKE | {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}),
    (ROBERTA, {1e-12}, BERT_LIKE | {"vocab_size": 50_265, "pad_token_id": 1}),
    (ROBERTA_CLASSIFIER, {1e-12}, BERT_LIKE | {"vocab_size": 50_265, "num_labels": 2}),
    (XLM_ROBERTA, {1e-12}, BERT_LIKE),
    (XLM_ROBERTA_CLASSIFIER, {1e-12}, BERT_LIKE | {"num_labels": 2}),
    (
        DISTILBERT,
        {1e-12},
        {"vocab_size": 30_522, "max_position_embeddings": 512, "dim": 768, "hidden_dim": 3072, "n_layers": 6}
        | {"n_heads": 12, "activation": "gelu"},
    ),
    (ROFORMER, {1e-12}, BERT_LIKE | {"vocab_size": 50_000, "max_position_embeddings": 1536, "embedding_size": None}),
    (
        MODERNBERT,
        {1e-5},
        sizes(50_368, 768, 1152, 22, 12, 8192)
        | {"norm_eps": 1e-5, "norm_bias": False, "hidden_activation": "gelu", "classifier_activation": "gelu"}
        | {"attention_bias": False, "mlp_bias": False, "classifier_bias": False, "decoder_bias": True}
        | {"local_attention": 128, "layer_types": SLIDING[1:] + (SLIDING[:1] * 2 + SLIDING[1:]) * 7}
        | {"rope_parameters": {"sliding_attention": ROPE, "full_attention": ROPE | {"rope_theta": 160_000.0}}}
        | {"tie_word_embeddings": True},
    ),
    (
        T5,
        {1e-6},
        {"vocab_size": 32_128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "num_layers": 6}
        | {"num_decoder_layers": 6, "layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu"}
        | {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
        | {"tie_word_embeddings": True, "scale_decoder_outputs": True},
    ),
    (BART, {1e-5}, BART_LIKE | {"vocab_size": 50_265}),
    (MBART, {1e-5}, BART_LIKE | {"vocab_size": 50_265}),
    (PEGASUS, {1e-5}, BART_LIKE | {"vocab_size": 50_265}),
    (
        MARIAN,
        {1e-5},
        BART_LIKE | {"vocab_size": 58_101, "decoder_vocab_size": None, "share_encoder_decoder_embeddings": True},
    ),
    (
        GPT2,
        {1e-5},
        GPT2_LIKE | {"activation_function": "gelu_new"},
    ),
    (GPT_BIGCODE, {1e-5}, GPT2_LIKE | {"activation_function": "gelu_pytorch_tanh", "multi_query": True}),
    (
        GPT_NEO,
        {1e-5},
        {"vocab_size": 50_257, "max_position_embeddings": 2048, "hidden_size": 2048, "num_layers": 24, "num_heads": 16}
        | {"attention_types": [[["global", "local"], 12]], "window_size": 256, "intermediate_size": None}
        | {"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True},
    ),
    (
        GPTJ,
        {1e-5},
        {"vocab_size": 50_400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16, "n_inner": None}
        | {
            "layer_norm_epsilon": 1e-5,
            "activation_function": "gelu_new",
            "rotary_dim": 64,
            "tie_word_embeddings": False,
        },
    ),
    (
        GPT_NEOX,
        {1e-5},
        sizes(50_432, 6144, 24_576, 44, 64, 2048)
        | {"layer_norm_eps": 1e-5, "hidden_act": "gelu", "use_parallel_residual": True, "attention_bias": True}
        | {"tie_word_embeddings": False}
        | QUARTER,
    ),
    (
        OPT,
        {1e-5},
        {"vocab_size": 50_272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072, "num_attention_heads": 12}
        | {"max_position_embeddings": 2048, "activation_function": "relu", "enable_bias": True}
        | {"word_embed_proj_dim": 768, "tie_word_embeddings": True},
    ),
    (
        BLOOM,
        {1e-5},
        {"vocab_size": 250_880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5}
        | {"tie_word_embeddings": True},
    ),
    (
        MPT,
        {1e-5},
        {"vocab_size": 50_368, "max_seq_len": 2048, "d_model": 2048, "n_layers": 24, "n_heads": 16}
        | {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_config": {"alibi": True}},
    ),
    (
        FALCON,
        {1e-5},
        {"vocab_size": 65_024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71}
        | {"layer_norm_epsilon": 1e-5, "activation": "gelu", "multi_query": True, "parallel_attn": True, "bias": False}
        | {"new_decoder_architecture": False, "max_position_embeddings": 2048, "tie_word_embeddings": True}
        | {"rope_parameters": ROPE},
    ),
    (
        PHI,
        {1e-5},
        sizes(51_200, 2048, 8192, 24, 32, 2048)
        | {"num_key_value_heads": None, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new", "tie_word_embeddings": False}
        | HALF,
    ),
    (
        STARCODER2,
        {1e-5},
        sizes(49_152, 3072, 12_288, 30, 24, 4096)
        | {"num_key_value_heads": 2, "norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh", "use_bias": True}
        | {"sliding_window": None, "tie_word_embeddings": True, "rope_parameters": ROPE},
    ),
    (
        PERSIMMON,
        {1e-5},
        sizes(262_144, 4096, 16_384, 36, 64, 16_384)
        | {"layer_norm_eps": 1e-5, "hidden_act": "relu2", "tie_word_embeddings": False}
        | HALF,
    ),
    (
        LLAMA,
        {1e-6},
        GATED
        | sizes(32_000, 4096, 11_008, 32, 32, 2048)
        | {"rms_norm_eps": 1e-6, "num_key_value_heads": None, "head_dim": None, "mlp_bias": False},
    ),
    (
        MISTRAL,
        {1e-6},
        sizes(32_000, 4096, 14_336, 32, 32, 131_072)
        | {"num_key_value_heads": 8, "head_dim": None, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
        | {"sliding_window": 4096, "tie_word_embeddings": False, "rope_parameters": ROPE},
    ),
    (
        MIXTRAL,
        {1e-5},
        sizes(32_000, 4096, 14_336, 32, 32, 131_072)
        | {"num_key_value_heads": 8, "head_dim": None, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None, "tie_word_embeddings": False}
        | {"rope_parameters": ROPE | {"rope_theta": 1e6}},
    ),
    (
        QWEN2,
        {1e-6},
        sizes(151_936, 4096, 22_016, 32, 32, 32_768)
        | {"num_key_value_heads": 32, "rms_norm_eps": 1e-6, "hidden_act": "silu", "use_sliding_window": False}
        | {"sliding_window": 4096, "max_window_layers": 28, "tie_word_embeddings": False, "rope_parameters": ROPE},
    ),
    (
        QWEN3,
        {1e-6},
        GATED
        | sizes(151_936, 4096, 22_016, 32, 32, 32_768)
        | {"num_key_value_heads": 32, "head_dim": 128, "rms_norm_eps": 1e-6},
    ),
    (
        QWEN3_MOE,
        {1e-6},
        GATED
        | sizes(151_936, 2048, 6144, 24, 32, 32_768)
        | {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "moe_intermediate_size": 768, "num_experts": 128}
        | {"num_experts_per_tok": 8},
    ),
    (
        GEMMA,
        {1e-6},
        GATED
        | sizes(256_000, 3072, 24_576, 28, 16, 8192)
        | {"num_key_value_heads": 16, "head_dim": 256, "rms_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"}
        | {"tie_word_embeddings": True},
    ),
    (
        GEMMA2,
        {1e-6},
        sizes(256_000, 2304, 9216, 26, 8, 8192)
        | {"num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh"}
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 256}
        | {"sliding_window": 4096, "layer_types": ["sliding_attention", "full_attention"] * 13}
        | {"tie_word_embeddings": True, "attention_bias": False, "rope_parameters": ROPE},
    ),
    (
        GEMMA3,
        {1e-6},
        sizes(262_208, 2304, 9216, 26, 8, 131_072)
        | {"num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh"}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 256}
        | {"sliding_window": 4096, "layer_types": (SLIDING[:1] * 5 + SLIDING[1:]) * 4 + SLIDING[:1] * 2}
        | {"tie_word_embeddings": True, "attention_bias": False}
        | {"rope_parameters": {"sliding_attention": ROPE, "full_attention": ROPE | {"rope_theta": 1e6}}},
    ),
    (OLMO, {1e-5}, GATED | sizes(50_304, 4096, 11_008, 32, 32, 2048) | {"num_key_value_heads": None}),
    (
        OLMO2,
        {1e-5},
        GATED | sizes(50_304, 4096, 11_008, 32, 32, 2048) | {"num_key_value_heads": None, "rms_norm_eps": 1e-5},
    ),
    (
        OLMOE,
        {1e-5},
        GATED
        | sizes(50_304, 2048, 2048, 16, 16, 4096)
        | {"num_key_value_heads": None, "rms_norm_eps": 1e-5, "num_experts": 64, "num_experts_per_tok": 8}
        | {"norm_topk_prob": False, "clip_qkv": None},
    ),
    (
        PHI3,
        {1e-5},
        GATED
        | sizes(32_064, 3072, 8192, 32, 32, 4096)
        | {"num_key_value_heads": None, "rms_norm_eps": 1e-5, "sliding_window": None},
    ),
    (
        STABLELM,
        {1e-5},
        sizes(50_304, 2560, 6912, 32, 32, 4096)
        | {"num_key_value_heads": 32, "layer_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False}
        | {"use_qkv_bias": False, "use_parallel_residual": False}
        | QUARTER,
    ),
    (
        NEMOTRON,
        {1e-5},
        sizes(256_000, 6144, 24_576, 32, 48, 4096)
        | {"num_key_value_heads": None, "norm_eps": 1e-5, "hidden_act": "relu2", "tie_word_embeddings": False}
        | {"attention_bias": False, "mlp_bias": False}
        | HALF,
    ),
    (COHERE, {1e-5}, COHERE_LIKE | {"rope_parameters": ROPE | {"rope_theta": 5e5}}),
    (
        COHERE2,
        {1e-5},
        COHERE_LIKE
        | {"sliding_window": 4096, "layer_types": (SLIDING[:1] * 3 + SLIDING[1:]) * 10, "rope_parameters": ROPE},
    ),
    (GLM, {1.5625e-7}, GLM_LIKE),
    (GLM4, {1.5625e-7}, GLM_LIKE),
    (
        HELIUM,
        {1e-8},
        GATED
        | sizes(48_000, 2560, 7040, 24, 20, 4096)
        | {"num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8, "mlp_bias": False}
        | {"rope_parameters": ROPE | {"rope_theta": 1e5}},
    ),
    (
        SMOLLM3,
        {1e-6},
        GATED
        | sizes(128_256, 2048, 11_008, 36, 16, 32_768)
        | {"num_key_value_heads": 4, "rms_norm_eps": 1e-6, "mlp_bias": False, "tie_word_embeddings": True}
        | {"no_rope_layers": [1, 1, 1, 0] * 9, "rope_parameters": ROPE | {"rope_theta": 2e6}},
    ),
    (
        GPT_OSS,
        {1e-5},
        sizes(201_088, 2880, 2880, 36, 64, 131_072)
        | {"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5, "attention_bias": True, "hidden_act": "silu"}
        | {"num_local_experts": 128, "num_experts_per_tok": 4, "swiglu_alpha": 1.702, "swiglu_limit": 7.0}
        | {"sliding_window": 128, "layer_types": SLIDING * 18, "tie_word_embeddings": False}
        | {
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 150_000.0, "factor": 32.0, "truncate": False}
            | {"beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
        },
    ),
    (
        DEEPSEEK_V3,
        {1e-6},
        GATED
        | sizes(129_280, 7168, 18_432, 61, 128, 4096)
        | {"num_key_value_heads": 128, "rms_norm_eps": 1e-6, "moe_intermediate_size": 2048, "n_shared_experts": 1}
        | {"n_routed_experts": 256, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "norm_topk_prob": True}
        | {"routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64}
        | {"qk_nope_head_dim": 128, "v_head_dim": 128, "first_k_dense_replace": 3, "rope_interleave": True},
    ),
    (
        MAMBA2,
        {1e-5},
        {"vocab_size": 32_768, "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64}
        | {"state_size": 128, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True, "layer_norm_epsilon": 1e-5}
        | {"expand": 2, "time_step_limit": [0.0, float("inf")], "tie_word_embeddings": False},
    ),
    (
        BAMBA,
        {1e-5},
        sizes(128_000, 4096, 14_336, 32, 32, 262_144)
        | {"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu", "mlp_bias": False}
        | {"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2}
        | {"mamba_conv_bias": True, "attention_bias": False, "tie_word_embeddings": False}
        | HALF,
    ),
    (
        QWEN3_NEXT,
        {1e-6},
        GATED
        | sizes(151_936, 2048, 5632, 48, 16, 32_768)
        | {"num_key_value_heads": 2, "head_dim": 256, "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4}
        | {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
        | {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
        | {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 12}
        | QUARTER,
    ),
    (
        OLMO_HYBRID,
        {1e-6, 1e-5},  # of the norms, and of the recurrent heads
        GATED
        | sizes(100_352, 3840, 11_008, 32, 30, 65_536)
        | {"num_key_value_heads": None, "rms_norm_eps": 1e-6, "linear_conv_kernel_dim": 4}
        | {"linear_num_key_heads": 30, "linear_num_value_heads": 30}
        | {"linear_key_head_dim": 96, "linear_value_head_dim": 192, "linear_allow_neg_eigval": True}
        | {"layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 8},
    ),
    (
        XLSTM,
        {1e-6},
        {"vocab_size": 50_304, "hidden_size": 4096, "num_hidden_layers": 32, "num_heads": 8, "norm_eps": 1e-6}
        | {"qk_dim_factor": 0.5, "v_dim_factor": 1.0, "ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64}
        | {"gate_soft_cap": 15.0, "output_logit_soft_cap": 30.0, "tie_word_embeddings": False},
    ),
    (
        VIT,
        {1e-12},
        {"image_size": 224, "num_channels": 3, "patch_size": 16, "hidden_size": 768, "num_hidden_layers": 12}
        | {"num_attention_heads": 12, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "hidden_act": "gelu"}
        | {"qkv_bias": True, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}},
    ),
]
"""Each architecture with all epsilons of its models and the defaults of its class, in `transformers` 5.24."""
NEEDED: dict[Architecture, dict[str, Any]] = {
    QWEN3_MOE: {"norm_topk_prob": True},
    QWEN3_NEXT: {"num_experts": 0},
    BAMBA: {"attn_layer_indices": [9, 18, 27]},
}
"""What the supported models of an architecture say, because their class has another default."""
IDS = [architecture.names[0] for architecture, *_ in DEFAULTS]


def epsilons(value: Any) -> set[float]:
    """Every field `eps` of a config."""
    inside = value if isinstance(value, tuple) else ()
    if dataclasses.is_dataclass(value):
        inside = tuple(getattr(value, field.name) for field in dataclasses.fields(value))
    own = {value.eps} if hasattr(value, "eps") else set()
    return own.union(*map(epsilons, inside))


def test_all_architectures_are_here():
    assert [architecture for architecture, *_ in DEFAULTS] == list(ARCHITECTURES)


@pytest.mark.parametrize(("architecture", "eps", "written"), DEFAULTS, ids=IDS)
def test_what_a_file_leaves_out_is_the_default_of_its_class(architecture, eps, written):
    needed = NEEDED.get(architecture, {})
    config = architecture.read_config(needed)
    assert config == architecture.read_config(written | needed)
    assert epsilons(config) == eps


@pytest.mark.parametrize(("architecture", "eps", "written"), DEFAULTS, ids=IDS)
def test_an_epsilon_that_is_written_is_that_of_all_norms(architecture, eps, written):
    """But for the constant of OLMo Hybrid's recurrent heads; the classes of BART, OPT and others have no such field."""
    names = [name for name in written if "eps" in name]
    config = architecture.read_config(NEEDED.get(architecture, {}) | dict.fromkeys(names, 3e-4))
    constant = eps if not names else eps - {written[names[0]]}
    assert epsilons(config) == constant | ({3e-4} if names else set())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (4, 4, 12, 24)),
        ({"linear_num_key_heads": 2, "linear_key_head_dim": None}, (4, 2, 24, 48)),
        ({"linear_key_head_dim": 5}, (4, 4, 5, 10)),
        ({"linear_value_head_dim": 7}, (4, 4, 12, 7)),
    ],
)
def test_recurrent_heads_follow_from_the_width(given, expected):
    """OLMo Hybrid: as many as of attention, keys of three quarters of the width together, values twice as wide."""
    fields = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4}
    recurrent = OLMO_HYBRID.read_config(fields | given).kinds[0].mixer
    assert (recurrent.num_heads, recurrent.key_heads, recurrent.key_dim, recurrent.value_dim) == expected


def test_alternating_windows_may_end_with_either():
    """An odd number of layers is no whole turns of two; a window comes first where nothing says which."""
    for architecture in (GEMMA2, GPT_OSS):
        kinds = architecture.read_config({"num_hidden_layers": 3}).kinds
        assert [kind.mixer.sparsity is not None for kind in kinds] == [True, False, True], architecture.names


@pytest.mark.parametrize("architecture", [BAMBA, QWEN3_NEXT], ids=lambda one: one.names[0])
def test_an_activation_that_recurrent_layers_have_not_is_refused(architecture):
    """There it is that of the convolution, too."""
    fields = {"num_experts": 0} if architecture is QWEN3_NEXT else {}
    with pytest.raises(ConfigError, match="hidden_act"):
        architecture.read_config(fields | {"hidden_act": "gelu"})


def test_the_output_of_heads_has_no_bias_in_helium():
    assert "mixer.bias" in HELIUM.differences(HELIUM.base.replace({"mixer.bias": ("query", "key", "value", "out")}))


@pytest.mark.parametrize("sizes", [(448, 488), (448, 496), (320, 856)])
def test_sizes_of_xlstm_are_those_that_are_read_again(sizes):
    """A file has them as multiples of the width, which are rounded down."""
    d_model, d_ff = sizes
    own = XLSTM.base.replace({"vocab_size": 11, "d_model": d_model, "feed_forward.d_ff": d_ff})
    assert "feed_forward.d_ff" not in XLSTM.differences(own)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        (GEMMA3, {"sliding_window_pattern": 0}),
        (GEMMA3, {"num_hidden_layers": 0}),
        (GEMMA2, {"query_pre_attn_scalar": 0}),
        (XLSTM, {"num_heads": 0}),
    ],
)
def test_a_number_that_nothing_can_be_divided_by_is_refused(architecture, fields):
    with pytest.raises(ConfigError):
        architecture.read_config(fields)


@pytest.mark.parametrize("count", [0, -1])
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=IDS)
def test_a_model_without_layers_is_refused(architecture, count):
    field = "encoder_layers" if isinstance(architecture.base, EncoderDecoderConfig) else "num_hidden_layers"
    with pytest.raises(ConfigError):
        architecture.read_config(NEEDED.get(architecture, {}) | {field: count})


def test_no_rotary_positions_are_said_by_a_base_that_is_null():
    """Or by a null for the whole field; the former is written, because the reference fills in a base for the latter."""
    none = OLMO_HYBRID.read_config({"rope_parameters": {"rope_type": "default", "rope_theta": None}})
    assert none.position is None
    assert OLMO_HYBRID.read_config({"rope_parameters": None}) == none
    assert OLMO_HYBRID.write_config(none)["rope_parameters"] == {"rope_type": "default", "rope_theta": None}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_shared_experts": 3}, "n_shared_experts: 3 are not supported, only 1 or 2"),
        ({"hidden_act": "sillu"}, "hidden_act: no 'sillu'; did you mean"),
        ({"first_k_dense_replace": 61}, "first_k_dense_replace: 61 of 61 layers leave none with experts"),
        ({"v_head_dim": 64}, "qk_nope_head_dim: not supported where they differ: qk_nope_head_dim 128, v_head_dim 64"),
        ({"quantization_config": {"quant_method": "fp8"}}, "not supported: quantization_config"),
        ({"topk_method": "greedy"}, "topk_method: 'greedy' is not supported, only 'noaux_tc'"),
    ],
)
def test_what_models_of_deepseek_do_not_have(fields, said):
    with pytest.raises(ConfigError, match=said):
        DEEPSEEK_V3.read_config(fields)


def test_layers_without_experts_come_first():
    """As many as the file says, or none."""
    for first in (0, 1, 2):
        config = DEEPSEEK_V3.read_config({"num_hidden_layers": 3, "first_k_dense_replace": first})
        widths = [config.layer_config(layer).feed_forward.d_ff for layer in range(3)]
        assert widths == [18_432] * first + [2048] * (3 - first)
        assert DEEPSEEK_V3.write_config(config)["first_k_dense_replace"] == first


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


MLP = tuple(f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))
EXPERT = tuple(f"model.layers.1.block_sparse_moe.experts.0.{name}.weight" for name in ("w1", "w3", "w2"))
BAMBA_NETWORK = tuple(f"model.layers.1.feed_forward.{name}_proj.weight" for name in ("gate", "up", "down"))
XLSTM_NETWORK = tuple(f"backbone.blocks.1.ffn.proj_{name}.weight" for name in ("up_gate", "up", "down"))
T5_NETWORK = tuple(f"decoder.block.1.layer.2.DenseReluDense.{name}.weight" for name in ("wi_0", "wi_1", "wo"))
TINY = sizes(11, 16, 12, 2, 2, 8) | {"head_dim": 8, "num_key_value_heads": 2}
TINY_RECURRENT = sizes(11, 16, 12, 2, 2, 8) | {"num_key_value_heads": 2}
LINEAR = {f"linear_{name}": 2 for name in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim")}
GATED_NETWORKS = [
    (LLAMA, TINY, MLP, silu),
    (QWEN3, TINY, MLP, silu),
    (GEMMA2, TINY, MLP, gelu),
    (MIXTRAL, TINY | {"num_local_experts": 1, "num_experts_per_tok": 1}, EXPERT, silu),
    (QWEN3_NEXT, TINY | LINEAR | {"num_experts": 0, "layer_types": ["linear_attention", "full_attention"]}, MLP, silu),
    (OLMO_HYBRID, TINY_RECURRENT | LINEAR | {"layer_types": ["linear_attention", "full_attention"]}, MLP, silu),
    (
        BAMBA,
        TINY_RECURRENT | {"attn_layer_indices": [1], "mamba_n_heads": 2, "mamba_d_state": 4},
        BAMBA_NETWORK,
        silu,
    ),
    (
        XLSTM,
        {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 2},
        XLSTM_NETWORK,
        silu,
    ),
    (
        T5,
        {"vocab_size": 11, "d_model": 16, "d_kv": 8, "d_ff": 12, "num_heads": 2, "num_layers": 2}
        | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        T5_NETWORK,
        gelu,
    ),
]
"""Architectures with a gated network, and the names of its gate, of what it multiplies, and of its output."""


@pytest.mark.parametrize(
    ("architecture", "fields", "names", "activation"), GATED_NETWORKS, ids=[one[0].names[0] for one in GATED_NETWORKS]
)
def test_the_gate_is_the_tensor_of_that_name(architecture, fields, names, activation, tmp_path):
    """down (activation(gate x) ⊙ up x) with the tensors of the second layer, out of the file."""
    safetensors = pytest.importorskip("safetensors.numpy")
    config = architecture.read_config(fields)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), jnp.float32), pure_model(config)[0])
    pretrained.save(tmp_path / "model", config, params, architecture=architecture)
    stored = safetensors.load_file(tmp_path / "model" / "model.safetensors")
    gate_FD, up_FD, down_DF = (stored[name] for name in names)
    x_LD = rng.normal(size=(3, 16)).astype(np.float32)
    expected = (activation(x_LD @ gate_FD.T) * (x_LD @ up_FD.T)) @ down_DF.T

    layer = config.layer_config(1)
    network, apply = split(abstract(lambda key: layer.feed_forward.build(layer, key=key)))
    kinds = params.get("decoder", params)["blocks"]["kinds"]
    own = kinds["1"] if "1" in kinds else kinds["0"]
    loaded = jax.tree.map(lambda leaf: leaf[-1], {name: own["feed_forward"][name] for name in network})
    found, _ = apply(loaded, x_LD[None], context=Context(Tokens.at(np.arange(3))))
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "value"), [("rope", True), ("kv_n_heads", 2), ("sliding_window_size", 4)])
def test_what_the_code_of_mpt_itself_reads_is_refused(name, value):
    fields = {"n_layers": 2, "n_heads": 4, "d_model": 16, "vocab_size": 8, "max_seq_len": 8}
    with pytest.raises(ConfigError, match=rf"^attn_config\.{name}: {value} is not supported, only "):
        MPT.read_config(fields | {"attn_config": {name: value}})


def stored(architecture, fields, folder):
    """(random parameters of the last layer's mixer, the tensors of the file they are saved in, the config)."""
    safetensors = pytest.importorskip("safetensors.numpy")
    config, rng = architecture.read_config(fields), np.random.default_rng(0)
    params = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), jnp.float32), pure_model(config)[0])
    pretrained.save(folder / "model", config, params, architecture=architecture)
    return params, safetensors.load_file(folder / "model" / "model.safetensors"), config


def test_the_input_matrix_of_mamba2(tmp_path):
    """z, x, B, C and Δ, one below the other; the convolution has x, B and C with the latest tap last."""
    fields = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_heads": 4, "head_dim": 4, "expand": 2}
    params, tensors, _ = stored(MAMBA2, fields | {"n_groups": 2, "state_size": 3}, tmp_path)
    own = {name: np.asarray(value[0]) for name, value in params["blocks"]["kinds"]["0"]["mamba2"]["params"].items()}
    rows = [own[name].T for name in ("gate", "value", "key", "query", "step")]
    np.testing.assert_array_equal(tensors["backbone.layers.0.mixer.in_proj.weight"], np.concatenate(rows))
    taps = [own[f"{name}_taps"][::-1].T for name in ("value", "key", "query")]
    np.testing.assert_array_equal(tensors["backbone.layers.0.mixer.conv1d.weight"][:, 0], np.concatenate(taps))


def test_the_gates_of_xlstm_are_the_tensors_of_their_names(tmp_path):
    fields = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 1, "num_heads": 2}
    params, tensors, _ = stored(XLSTM, fields, tmp_path)
    own = params["blocks"]["kinds"]["0"]["mlstm"]["params"]
    for name, letter in (("input", "i"), ("forget", "f"), ("gate", "o")):
        theirs = tensors[f"backbone.blocks.0.mlstm_layer.{letter}gate_preact.weight"]
        np.testing.assert_array_equal(theirs, own[name][0].T)


SMALL_DEEPSEEK = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SMALL_DEEPSEEK |= {
    "qk_nope_head_dim": 4,
    "v_head_dim": 4,
    "qk_rope_head_dim": 2,
    "kv_lora_rank": 3,
    "q_lora_rank": None,
}
SMALL_DEEPSEEK |= {"first_k_dense_replace": 0, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1}
SMALL_DEEPSEEK |= {"topk_group": 1, "moe_intermediate_size": 4, "num_key_value_heads": 2}


def test_keys_and_values_of_a_head_of_deepseek_follow_each_other(tmp_path):
    """In the rows of each head the key comes first."""
    params, tensors, _ = stored(DEEPSEEK_V3, SMALL_DEEPSEEK, tmp_path)
    own = params["blocks"]["kinds"]["0"]["attention"]["params"]["heads"]
    theirs = tensors["model.layers.0.self_attn.kv_b_proj.weight"].reshape(2, 2, 4, 3)
    for i, name in enumerate(("keys", "values")):
        np.testing.assert_array_equal(theirs[:, i], np.swapaxes(own[name][0], 1, 2))


def test_scores_of_deepseek_grow_with_the_square_of_the_factor_of_yarn():
    """(0.1 · mscale_all_dim · log factor + 1)² / √(size of a query), as the published code has it."""
    yarn = {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5, "rope_theta": 1e4}
    yarn |= {"original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
    scale = DEEPSEEK_V3.read_config(SMALL_DEEPSEEK | {"rope_parameters": yarn}).mixer.scale
    np.testing.assert_allclose(scale.value, (0.05 * np.log(40) + 1) ** 2 / 6**0.5, rtol=1e-6)


def test_scores_of_gemma2_have_the_factor_of_the_file():
    """Which is not that of the size of a head."""
    config = GEMMA2.read_config({"query_pre_attn_scalar": 144, "head_dim": 128})
    assert config.mixer.scale.value == pytest.approx(1 / 12)


@pytest.mark.parametrize(
    ("fields", "scale"),
    [
        ({"tie_word_embeddings": False}, 1.0),
        ({"tie_word_embeddings": True}, 512**-0.5),
        ({"tie_word_embeddings": False, "scale_decoder_outputs": True}, 512**-0.5),
    ],
)
def test_older_files_of_t5_scale_logits_of_tied_tables_alone(fields, scale):
    assert T5.read_config(fields).head.scale == pytest.approx(scale)


def test_layers_of_command_r7b_with_a_window_alone_have_positions():
    kinds = COHERE2.read_config({}).kinds
    assert [kind.position is None for kind in kinds] == [kind.mixer.sparsity is None for kind in kinds]
    assert [kind.position is None for kind in kinds[:4]] == [False, False, False, True]
