"""Published architectures: the same weights give the same numbers here and in `transformers`.

Sizes expose mistakes: 6 heads, 2 key-value heads, heads that do not fill d_model, odd lengths, padding
on both sides; every tensor of the reference is randomized again. Needs the extra `parity`.
"""

import copy
import functools
import json
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import transformer
from transformer import pretrained
from transformer.analysis.activations import run_with_cache, stacked
from transformer.core.modules import abstract, split
from transformer.inference.beam import Beam
from transformer.inference.generate import generate
from transformer.models.build import build
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.images import VisionConfig
from transformer.pretrained.names import flat

torch = pytest.importorskip("torch", reason="parity needs the extra: pip install '.[parity]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers", reason="parity needs the extra: pip install '.[parity]'")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

B, L, S, V = 3, 9, 7, 97
LLAMA_LIKE = {
    "vocab_size": V,
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 80,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
EQUAL_HEADS = {name: value for name, value in LLAMA_LIKE.items() if name != "head_dim"}
"""Where the size of a head follows from the width."""
MANY_HEADS = {name: value for name, value in EQUAL_HEADS.items() if name != "num_key_value_heads"}
"""Where all heads have keys of their own."""
DEEPSEEK_LIKE = MANY_HEADS | {
    "num_key_value_heads": 6,
    "num_hidden_layers": 3,
    "moe_intermediate_size": 20,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 10,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 12,
}
NO_NETWORK = {name: value for name, value in MANY_HEADS.items() if name != "intermediate_size"}
"""Where the width of the network has another name."""
BERT_LIKE = {
    "hidden_size": 48,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
}
ROBERTA_LIKE = BERT_LIKE | {"vocab_size": V, "max_position_embeddings": 22, "pad_token_id": 1}
BART_LIKE = {
    "vocab_size": V,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 80,
    "pad_token_id": 96,
    "bos_token_id": None,
    "eos_token_id": None,
    "forced_eos_token_id": None,
    "decoder_start_token_id": 5,
}
T5_LIKE = {
    "vocab_size": V,
    "d_model": 48,
    "d_kv": 12,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 6,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "eos_token_id": None,
    "decoder_start_token_id": 5,
}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 20}
"""Of 6 pairs none turns 32 times over 20 tokens, and the first two more than once."""


class Case(NamedTuple):
    """A class of the reference and the fields of its config."""

    model: str
    config: str
    fields: dict[str, Any]
    normed: bool = True
    """Whether the last of its hidden states is what the final norm makes of it."""
    architecture: pretrained.Architecture | None = None
    """Where it does not come with the library."""
    states: bool = True
    """Whether its hidden states are the stream."""
    noise: float = 0.15
    """What is added to every number; less where float32 alone is further from float64, as where scores have no factor,
    and a softmax of large ones is all rounding."""


def architecture_of(name: str) -> pretrained.Architecture:
    """That of a case; a config alone may be of several, as RoBERTa's is BERT's."""
    case = CASES[name]
    return case.architecture or next(one for one in pretrained.ARCHITECTURES if case.model in one.names)


def of_the_page(name: str) -> pretrained.Architecture:
    """What its example defines, without the last line, which reads a folder."""
    page = (Path(__file__).parents[2] / "docs" / "pretrained.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"{name} = " in block)
    defined: dict[str, Any] = {"T": transformer}
    exec(code.partition("config, params")[0], defined)
    return defined[name]


CASES = {
    "gpt2": Case(
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": V, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 80, "n_inner": 40}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "bert": Case("BertForMaskedLM", "BertConfig", BERT_LIKE | {"vocab_size": V, "max_position_embeddings": 20}),
    "bert-classifier": Case(
        "BertForSequenceClassification",
        "BertConfig",
        BERT_LIKE | {"vocab_size": V, "max_position_embeddings": 20, "type_vocab_size": 3, "num_labels": 5},
    ),
    "t5": Case("T5ForConditionalGeneration", "T5Config", T5_LIKE, noise=0.05),
    "t5-v1.1": Case(
        "T5ForConditionalGeneration",
        "T5Config",
        T5_LIKE | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        noise=0.05,
    ),
    "bart": Case("BartForConditionalGeneration", "BartConfig", BART_LIKE | {"scale_embedding": True}),
    "marian": Case(
        "MarianMTModel", "MarianConfig", BART_LIKE | {"activation_function": "swish", "scale_embedding": True}
    ),
    "llama": Case("LlamaForCausalLM", "LlamaConfig", LLAMA_LIKE | {"attention_bias": True, "mlp_bias": True}),
    "llama-3": Case("LlamaForCausalLM", "LlamaConfig", LLAMA_LIKE | {"rope_parameters": LLAMA_3}),
    "llama-yarn": Case("LlamaForCausalLM", "LlamaConfig", LLAMA_LIKE | {"rope_parameters": YARN}),
    "llama-yarn-mscale": Case(
        "LlamaForCausalLM",
        "LlamaConfig",
        LLAMA_LIKE
        | {"rope_parameters": YARN | {"beta_fast": 4.0, "beta_slow": 0.1, "mscale": 0.7, "mscale_all_dim": 1.3}},
    ),
    "gpt-neox": Case(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        BERT_LIKE
        | {"vocab_size": V, "max_position_embeddings": 80, "bos_token_id": None, "eos_token_id": None}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    ),
    "gpt-neox-sequential": Case(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        BERT_LIKE
        | {"vocab_size": V, "max_position_embeddings": 80, "bos_token_id": None, "eos_token_id": None}
        | {"use_parallel_residual": False, "attention_bias": False},
    ),
    "bloom": Case(
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": V, "hidden_size": 48, "n_layer": 2, "n_head": 6, "bos_token_id": None, "eos_token_id": None},
    ),
    "gemma2": Case(
        "Gemma2ForCausalLM",
        "Gemma2Config",
        LLAMA_LIKE
        | {"num_hidden_layers": 4, "sliding_window": 4, "query_pre_attn_scalar": 20}
        | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "qwen3": Case("Qwen3ForCausalLM", "Qwen3Config", LLAMA_LIKE | {"tie_word_embeddings": True}),
    "mixtral": Case(
        "MixtralForCausalLM",
        "MixtralConfig",
        LLAMA_LIKE | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    "mamba2": Case(
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {"vocab_size": V, "hidden_size": 48, "num_hidden_layers": 2, "num_heads": 6, "head_dim": 16, "state_size": 10}
        | {"n_groups": 2, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None},
        states=False,
    ),
    "bamba": Case(
        "BambaForCausalLM",
        "BambaConfig",
        EQUAL_HEADS
        | {"num_hidden_layers": 3, "attn_layer_indices": [1], "mamba_n_heads": 6, "mamba_d_state": 10}
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}},
    ),
    "qwen3-next": Case(
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        LLAMA_LIKE
        | {"num_hidden_layers": 4, "num_experts": 0, "mlp_only_layers": [0, 1, 2, 3], "head_dim": 16}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 10}
        | {"linear_value_head_dim": 14},
        noise=0.05,
    ),
    "olmo-hybrid": Case(
        "OlmoHybridForCausalLM",
        "OlmoHybridConfig",
        EQUAL_HEADS
        | {"num_hidden_layers": 4, "linear_num_key_heads": 6, "linear_num_value_heads": 6}
        # The reference saves its convolution in equal thirds.
        | {"linear_key_head_dim": 10, "linear_value_head_dim": 10},
        noise=0.05,
    ),
    "xlstm": Case(
        "xLSTMForCausalLM",
        "xLSTMConfig",
        {"vocab_size": V, "hidden_size": 128, "num_hidden_layers": 2, "num_heads": 4, "bos_token_id": None}
        | {"eos_token_id": None, "pad_token_id": None, "chunkwise_kernel": "chunkwise--native_autograd"},
    ),
    "arcee": Case(
        "ArceeForCausalLM", "ArceeConfig", LLAMA_LIKE | {"mlp_bias": True}, architecture=of_the_page("ARCEE")
    ),
    "mistral": Case("MistralForCausalLM", "MistralConfig", LLAMA_LIKE | {"sliding_window": 4}),
    "mistral-everywhere": Case("MistralForCausalLM", "MistralConfig", LLAMA_LIKE | {"sliding_window": None}),
    "qwen2": Case("Qwen2ForCausalLM", "Qwen2Config", EQUAL_HEADS),
    "qwen2-windows": Case(
        "Qwen2ForCausalLM",
        "Qwen2Config",
        EQUAL_HEADS | {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen3-yarn": Case(
        "Qwen3ForCausalLM",
        "Qwen3Config",
        LLAMA_LIKE
        | {"rope_parameters": YARN | {"beta_fast": 3.0, "beta_slow": 0.05, "truncate": False, "attention_factor": 1.2}},
    ),
    "qwen3-moe": Case(
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        LLAMA_LIKE | {"moe_intermediate_size": 40, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": True},
    ),
    "gemma": Case("GemmaForCausalLM", "GemmaConfig", LLAMA_LIKE),
    # Six of seven layers are of one turn, so that all layers are different.
    "gemma3": Case(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        LLAMA_LIKE | {"num_hidden_layers": 7, "sliding_window": 4, "query_pre_attn_scalar": 20},
    ),
    "phi": Case("PhiForCausalLM", "PhiConfig", EQUAL_HEADS),
    "phi-yarn": Case(
        "PhiForCausalLM", "PhiConfig", EQUAL_HEADS | {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}
    ),
    "phi3": Case("Phi3ForCausalLM", "Phi3Config", EQUAL_HEADS | {"sliding_window": 5}),
    "olmo": Case("OlmoForCausalLM", "OlmoConfig", EQUAL_HEADS),
    "olmo2": Case("Olmo2ForCausalLM", "Olmo2Config", EQUAL_HEADS),
    "olmoe": Case("OlmoeForCausalLM", "OlmoeConfig", EQUAL_HEADS | {"num_experts": 5, "num_experts_per_tok": 2}),
    "falcon": Case("FalconForCausalLM", "FalconConfig", NO_NETWORK),
    "falcon-grouped": Case(
        "FalconForCausalLM",
        "FalconConfig",
        NO_NETWORK | {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "ffn_hidden_size": 40},
    ),
    "falcon-one-norm": Case(
        "FalconForCausalLM",
        "FalconConfig",
        NO_NETWORK | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1},
    ),
    "falcon-sequential": Case(
        "FalconForCausalLM", "FalconConfig", NO_NETWORK | {"multi_query": False, "parallel_attn": False}
    ),
    "starcoder2": Case("Starcoder2ForCausalLM", "Starcoder2Config", EQUAL_HEADS | {"sliding_window": 5}),
    "stablelm": Case(
        "StableLmForCausalLM",
        "StableLmConfig",
        EQUAL_HEADS | {"use_qkv_bias": True, "use_parallel_residual": True},
    ),
    "stablelm-sequential": Case("StableLmForCausalLM", "StableLmConfig", EQUAL_HEADS),
    "gptj": Case(
        "GPTJForCausalLM",
        "GPTJConfig",
        {"vocab_size": V, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 80, "n_inner": 40, "rotary_dim": 4}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "gpt-neo": Case(
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {"vocab_size": V, "hidden_size": 48, "num_layers": 4, "num_heads": 6, "max_position_embeddings": 80}
        | {"attention_types": [[["global", "local"], 2]], "window_size": 4, "intermediate_size": 40}
        | {"bos_token_id": None, "eos_token_id": None},
        noise=0.05,
    ),
    "gpt-bigcode": Case(
        "GPTBigCodeForCausalLM",
        "GPTBigCodeConfig",
        {"vocab_size": V, "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 80, "n_inner": 40}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "opt": Case(
        "OPTForCausalLM",
        "OPTConfig",
        NO_NETWORK | {"ffn_dim": 40},
    ),
    "mpt": Case(
        "MptForCausalLM",
        "MptConfig",
        {"vocab_size": V, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 80}
        | {"bos_token_id": None, "eos_token_id": None},
    ),
    "persimmon": Case("PersimmonForCausalLM", "PersimmonConfig", MANY_HEADS),
    "nemotron": Case("NemotronForCausalLM", "NemotronConfig", LLAMA_LIKE),
    "smollm3": Case("SmolLM3ForCausalLM", "SmolLM3Config", EQUAL_HEADS | {"num_hidden_layers": 4}),
    "cohere": Case("CohereForCausalLM", "CohereConfig", EQUAL_HEADS),
    "cohere2": Case("Cohere2ForCausalLM", "Cohere2Config", EQUAL_HEADS | {"num_hidden_layers": 4, "sliding_window": 4}),
    "glm": Case("GlmForCausalLM", "GlmConfig", LLAMA_LIKE),
    "glm4": Case("Glm4ForCausalLM", "Glm4Config", LLAMA_LIKE),
    "helium": Case("HeliumForCausalLM", "HeliumConfig", LLAMA_LIKE | {"head_dim": 8}),
    "gpt-oss": Case(
        "GptOssForCausalLM",
        "GptOssConfig",
        LLAMA_LIKE | {"sliding_window": 4, "num_local_experts": 5, "num_experts_per_tok": 2, "swiglu_limit": 0.5},
    ),
    "deepseek-v3": Case(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        DEEPSEEK_LIKE
        | {"first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "n_shared_experts": 2, "q_lora_rank": 14}
        | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3}},
    ),
    "moonlight": Case(
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        DEEPSEEK_LIKE | {"first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "q_lora_rank": None},
    ),
    "roberta": Case("RobertaForMaskedLM", "RobertaConfig", ROBERTA_LIKE | {"type_vocab_size": 2}),
    "roberta-classifier": Case(
        "RobertaForSequenceClassification", "RobertaConfig", ROBERTA_LIKE | {"type_vocab_size": 1, "num_labels": 5}
    ),
    "xlm-roberta": Case("XLMRobertaForMaskedLM", "XLMRobertaConfig", ROBERTA_LIKE | {"type_vocab_size": 1}),
    "xlm-roberta-classifier": Case(
        "XLMRobertaForSequenceClassification", "XLMRobertaConfig", ROBERTA_LIKE | {"num_labels": 5}
    ),
    "distilbert": Case(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"vocab_size": V, "dim": 48, "hidden_dim": 40, "n_layers": 2, "n_heads": 6, "max_position_embeddings": 20},
    ),
    "roformer": Case(
        "RoFormerForMaskedLM", "RoFormerConfig", BERT_LIKE | {"vocab_size": V, "max_position_embeddings": 20}
    ),
    "modernbert": Case(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        # Layers 1, 2 and 4 have a window, of 2 tokens on each side.
        BERT_LIKE | {"vocab_size": V, "num_hidden_layers": 5, "local_attention": 4, "pad_token_id": None},
    ),
    "modernbert-biases": Case(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        BERT_LIKE
        | {"vocab_size": V, "local_attention": 4, "pad_token_id": None, "decoder_bias": False, "norm_bias": True}
        | {"attention_bias": True, "mlp_bias": True, "classifier_bias": True, "tie_word_embeddings": False},
    ),
    "mbart": Case("MBartForConditionalGeneration", "MBartConfig", BART_LIKE | {"scale_embedding": True}),
    "pegasus": Case(
        "PegasusForConditionalGeneration", "PegasusConfig", BART_LIKE | {"activation_function": "relu"}, noise=0.1
    ),
    "vit": Case(
        "ViTForImageClassification",
        "ViTConfig",
        BERT_LIKE | {"image_size": [6, 10], "patch_size": 2, "num_labels": 5},
        normed=False,
    ),
}


class Pair(NamedTuple):
    """A model of the reference, and what was loaded of its folder."""

    theirs: Any
    config: Any
    params: Any
    model: Any
    apply: Any


@functools.cache
def reference(name: str):
    """The model, all of whose tensors are away from where they begin."""
    case = CASES[name]
    torch.manual_seed(0)
    config = getattr(transformers, case.config)(**case.fields, attn_implementation="eager")
    model = getattr(transformers, case.model)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(case.noise * torch.randn_like(parameter))
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith(("final_logits_bias", "e_score_correction_bias")):
                buffer.add_(torch.randn_like(buffer))
    return model


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """By name, each loaded once."""

    @functools.cache
    def pair(name: str) -> Pair:
        folder = tmp_path_factory.mktemp(name)
        reference(name).save_pretrained(folder)
        config, params = pretrained.load(folder, architecture=CASES[name].architecture)
        model = abstract(lambda key: build(config, key=key))
        return Pair(reference(name), config, params, model, split(model)[1])

    return pair


class Call(NamedTuple):
    """The same inputs for both, and where outputs are compared."""

    theirs: dict[str, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    real: np.ndarray


def call(pair: Pair) -> Call:
    """Tokens padded on the left, on the right, and not at all; or images."""
    rng = np.random.default_rng(1)
    if isinstance(pair.config, VisionConfig):
        images = rng.normal(size=(B, *pair.config.image_size)).astype(np.float32)
        theirs = {"pixel_values": torch.tensor(images.transpose(0, 3, 1, 2))}
        return Call(theirs, (jnp.asarray(images),), {}, np.ones(B, bool))
    knows_padding = pair.theirs.config.model_type != "xlstm"
    tokens, valid = rng.integers(0, V, (B, L)), _padding(L) if knows_padding else np.ones((B, L), bool)
    theirs = {"input_ids": torch.tensor(tokens), "attention_mask": torch.tensor(valid.astype(int))}
    if isinstance(pair.config, EncoderDecoderConfig):
        source, source_valid = rng.integers(0, V, (B, S)), _padding(S)
        theirs = {"decoder_input_ids": theirs["input_ids"], "decoder_attention_mask": theirs["attention_mask"]}
        theirs |= {"input_ids": torch.tensor(source), "attention_mask": torch.tensor(source_valid.astype(int))}
        ours = {"source_valid_BS": jnp.asarray(source_valid), "valid_BL": jnp.asarray(valid)}
        return Call(theirs, (_ints(source), _ints(tokens)), ours, valid)
    ours = {"valid_BL": jnp.asarray(valid)}
    if pair.config.embedding.types is not None:
        types = rng.integers(0, pair.config.embedding.types, (B, L))
        theirs["token_type_ids"], ours["types_BL"] = torch.tensor(types), _ints(types)
    elif pair.config.causal:
        positions = np.maximum(np.cumsum(valid, 1) - 1, 0)
        ours["positions_BL"] = _ints(positions)
        if pair.theirs.config.model_type not in ("bloom", "mpt"):  # they take them from the mask
            theirs["position_ids"] = torch.tensor(positions)
    if "roberta" in pair.theirs.config.model_type:  # it counts from the id of padding, and by tokens that are it
        theirs["position_ids"] = torch.tensor(np.broadcast_to(np.arange(L) + 2, (B, L)))
    real = valid if hasattr(pair.model, "extend") else np.ones(B, bool)
    return Call(theirs, (_ints(tokens),), ours, real)


def _padding(length: int) -> np.ndarray:
    valid = np.ones((B, length), bool)
    valid[0, :2], valid[1, -3:] = False, False
    return valid


def _ints(array) -> jax.Array:
    return jnp.asarray(array, jnp.int32)


def close(ours, theirs, what: str, scale: float = 0.0) -> None:
    """Equal to 1e-5 of the largest number of theirs, or of `scale` where that is more."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, what
    error = np.abs(ours - theirs).max() / max(np.abs(theirs).max(), scale)
    assert error < 1e-5, f"{what}: {error:.1e}"


@pytest.mark.parametrize("name", CASES)
def test_logits(name, pairs):
    pair = pairs(name)
    inputs = call(pair)
    with torch.no_grad():
        expected = pair.theirs(**inputs.theirs, **_no_cache(pair)).logits.numpy()
    logits = jax.jit(pair.apply)(pair.params, *inputs.args, **inputs.kwargs)
    close(np.asarray(logits)[inputs.real], expected[inputs.real], name)


def _no_cache(pair: Pair) -> dict[str, Any]:
    return {} if isinstance(pair.config, VisionConfig) else {"use_cache": False} if pair.config.causal else {}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.states])
def test_states_after_every_layer_and_what_every_head_attends_to(name, pairs):
    pair = pairs(name)
    inputs = call(pair)
    pair.theirs.set_attn_implementation("eager")  # the other ones form no weights
    more = {"output_hidden_states": True, "output_attentions": True}
    with torch.no_grad():
        expected = pair.theirs(**inputs.theirs, **_no_cache(pair), **more)
    run = jax.jit(functools.partial(run_with_cache, pair.apply))
    _, found = run(pair.params, *inputs.args, **inputs.kwargs)
    if isinstance(pair.config, EncoderDecoderConfig):
        valid, source_valid = inputs.kwargs["valid_BL"], inputs.kwargs["source_valid_BS"]
        sides = [("encoder.", expected.encoder_hidden_states, source_valid)]
        sides += [("decoder.", expected.decoder_hidden_states, valid)]
        patterns = [("encoder.blocks.*.attention", expected.encoder_attentions, source_valid)]
        patterns += [("decoder.blocks.*.attention", expected.decoder_attentions, valid)]
        patterns += [("decoder.blocks.*.cross_attention", expected.cross_attentions, valid)]
    else:
        sides = [("", expected.hidden_states, inputs.kwargs.get("valid_BL"))]
        attentions = [one for one in getattr(expected, "attentions", ()) if one is not None]
        patterns = [("blocks.*.attention", attentions, inputs.kwargs.get("valid_BL"))] if attentions else []
    for stack, theirs, valid in sides:
        states = [found[f"{stack}blocks.0.resid_pre"], *stacked(found, f"{stack}blocks.*.resid_post")]
        states = [*states[:-1], found[f"{stack}final_norm.out"] if CASES[name].normed else states[-1]]
        for number, (a, b) in enumerate(zip(states, theirs, strict=True)):
            real = np.ones(b.shape[:2], bool) if valid is None else np.asarray(valid)
            close(np.asarray(a)[real], b.numpy()[real], f"{name}, {stack}layer {number}")
    for what, theirs, valid in patterns:
        for number, (a, b) in enumerate(zip(stacked(found, f"{what}.pattern"), theirs, strict=True)):
            real = np.ones(b.shape[::2], bool) if valid is None else np.asarray(valid)
            ours, own = (np.asarray(x).transpose(0, 2, 1, 3)[real] for x in (a, b.numpy()))
            close(ours, own, f"{name}, {what} of layer {number}")


@pytest.mark.parametrize("name", CASES)
def test_gradients(name, pairs, tmp_path):
    """Of a random sum of the logits, stored under the names of the reference and read by our table of names."""
    pair = pairs(name)
    inputs = call(pair)
    weights = np.random.default_rng(2).normal(size=inputs.real.shape)[..., None] * inputs.real[..., None]
    logits = pair.theirs(**inputs.theirs, **_no_cache(pair)).logits
    mixture = np.random.default_rng(3).normal(size=logits.shape) * weights
    model = copy.deepcopy(pair.theirs)
    (model(**inputs.theirs, **_no_cache(pair)).logits * torch.tensor(mixture, dtype=torch.float32)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        for buffer_name, buffer in model.named_buffers():
            if buffer_name.endswith("e_score_correction_bias"):  # no logit changes with it but by the choice
                buffer.zero_()
    model.save_pretrained(tmp_path)
    expected = flat(pretrained.load(tmp_path, architecture=CASES[name].architecture)[1])

    def loss(params):
        return (pair.apply(params, *inputs.args, **inputs.kwargs) * mixture.astype(np.float32)).sum()

    gradients = flat(jax.jit(jax.grad(loss))(pair.params))
    # A bias that softmax cancels has a gradient of rounding alone.
    scale = 1e-2 * max(np.abs(np.asarray(g)).max() for g in expected.values())
    for path, gradient in gradients.items():
        if "final_logits_bias" not in dict(pair.theirs.named_buffers()) or path[:2] != ("logits", "output"):
            close(gradient, expected[path], f"{name}, {'/'.join(path)}", scale)


@pytest.mark.parametrize("name", CASES)
def test_what_we_save_is_read_there(name, pairs, tmp_path):
    """Bit for bit, in one file and in several, with nothing to spare, and missing only what it computes itself."""
    pair = pairs(name)
    own = architecture_of(name)
    ids = {k: v for k, v in pair.theirs.config.to_dict().items() if k.endswith("_token_id")}
    for folder, size in ((tmp_path / "one", 10**9), (tmp_path / "many", 40_000)):
        pretrained.save(folder, pair.config, pair.params, fields=ids, shard_bytes=size, architecture=own)
        assert len(list(folder.glob("*.safetensors"))) > (size == 40_000)
        model, notes = type(pair.theirs).from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
        missing = [key for key in notes["missing_keys"] if not re.fullmatch(own.ignored, key)]
        assert not missing, notes
        assert not notes["unexpected_keys"], notes
        assert not notes["mismatched_keys"], notes
        inputs = call(pair)
        with torch.no_grad():
            theirs = [m.eval()(**inputs.theirs, **_no_cache(pair)).logits.numpy() for m in (model, pair.theirs)]
        np.testing.assert_array_equal(*theirs)
        config, params = pretrained.load(folder, architecture=own)
        assert config == pair.config
        jax.tree.map(np.testing.assert_array_equal, params, pair.params)


NEEDED: dict[str, dict[str, Any]] = {
    "BambaForCausalLM": {"attn_layer_indices": [9, 18, 27]},
    "Qwen3NextForCausalLM": {"num_experts": 0},
    "Qwen3MoeForCausalLM": {"norm_topk_prob": True},
    "OlmoHybridForCausalLM": {"num_key_value_heads": 30},
}
"""What a config.json has to say, because the class has another default, or derives it."""


@pytest.mark.parametrize("architecture", pretrained.ARCHITECTURES, ids=lambda one: one.names[0])
def test_a_config_that_we_save_says_the_same_there(architecture):
    """Read by the class of the reference and written with all its fields; those with one value here have it there."""
    written = architecture.write_config(architecture.read_config(NEEDED.get(architecture.names[0], {})))
    theirs = CONFIG_MAPPING[architecture.model_type].from_dict(json.loads(json.dumps(written)))
    again = architecture.write_config(architecture.read_config(json.loads(theirs.to_json_string(use_diff=False))))
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(written))


DECODERS = [name for name, case in CASES.items() if "CausalLM" in case.model or case.model == "GPT2LMHeadModel"]
TRANSLATORS = [
    name for name, case in CASES.items() if "ConditionalGeneration" in case.model or case.model == "MarianMTModel"
]


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_decoding(name, pairs):
    """64 tokens, token for token, with a cache."""
    pair = pairs(name)
    prompt = np.random.default_rng(4).integers(0, V, (B, 6))
    settings = {"max_new_tokens": 64, "do_sample": False, "pad_token_id": 0}
    theirs = pair.theirs.generate(torch.tensor(prompt), attention_mask=torch.ones(B, 6, dtype=int), **settings)
    ours = generate(pair.apply, pair.params, _ints(prompt), num_tokens=64)
    np.testing.assert_array_equal(ours.tokens_BT, theirs.numpy()[:, 6:])


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations(name, beams, pairs):
    """Greedy and with beams, of a padded source."""
    pair = pairs(name)
    inputs = call(pair)
    source = {k: inputs.theirs[k] for k in ("input_ids", "attention_mask")}
    length = 64 if beams == 1 else 16
    settings = {"max_new_tokens": length, "do_sample": False, "num_beams": beams, "pad_token_id": 0}
    settings["use_cache"] = False  # theirs of T5 has as many layers as the encoder
    theirs = pair.theirs.generate(**source, **settings)
    ours = generate(
        pair.apply,
        pair.params,
        jnp.full((B, 1), 5, jnp.int32),
        num_tokens=length,
        strategy=Beam(size=beams),
        inputs={"source_BS": inputs.args[0], "source_valid_BS": inputs.kwargs["source_valid_BS"]},
    )
    np.testing.assert_array_equal(ours.tokens_BT, theirs.numpy()[:, 1:])


@pytest.mark.parametrize("name", ["bart"])
def test_translations_that_end(name, pairs):
    """Beams of other lengths are ranked alike: by log-probability over length, until four have ended.

    Where fewer have ended at the last token, theirs ranks unfinished ones among them, and ours does not.
    """
    pair = pairs(name)
    inputs = call(pair)
    source = {k: inputs.theirs[k] for k in ("input_ids", "attention_mask")}
    settings = {"do_sample": False, "num_beams": 4, "pad_token_id": 0, "use_cache": False, "early_stopping": True}
    end = int(pair.theirs.generate(**source, max_new_tokens=6, **settings)[0, -1])
    theirs = pair.theirs.generate(**source, max_new_tokens=20, eos_token_id=end, **settings)[:, 1:].numpy()
    ours = generate(
        pair.apply,
        pair.params,
        jnp.full((B, 1), 5, jnp.int32),
        num_tokens=20,
        stop=end,
        strategy=Beam(size=4, early_stopping=True),
        inputs={"source_BS": inputs.args[0], "source_valid_BS": inputs.kwargs["source_valid_BS"]},
    )
    ended = (theirs == end).any(1)
    assert ended.any()
    tokens = np.asarray(ours.tokens_BT)
    np.testing.assert_array_equal(tokens[ended, : theirs.shape[1]], theirs[ended])
    assert not tokens[ended, theirs.shape[1] :].any()
