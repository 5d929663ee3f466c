"""The config.json of published models, as their pages have it, is read, and counts the parameters that they say."""

import json
import math
from typing import Any

import pytest

from transformer.models.build import pure_model
from transformer.pretrained import ARCHITECTURES, Architecture, load_config
from transformer.pretrained.names import flat

BERT = {"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu"}
BERT |= {"hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072}
BERT |= {"layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12}
BERT |= {"num_hidden_layers": 12, "pad_token_id": 0, "type_vocab_size": 2}
ROBERTA = BERT | {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta", "layer_norm_eps": 1e-5}
ROBERTA |= {"bos_token_id": 0, "eos_token_id": 2, "max_position_embeddings": 514, "pad_token_id": 1}
ROBERTA |= {"type_vocab_size": 1, "vocab_size": 50_265}
BART = {"_num_labels": 3, "activation_dropout": 0.0, "activation_function": "gelu", "add_final_layer_norm": False}
BART |= {"attention_dropout": 0.0, "bos_token_id": 0, "classif_dropout": 0.0, "d_model": 1024, "dropout": 0.1}
BART |= {"decoder_attention_heads": 16, "decoder_ffn_dim": 4096, "decoder_layerdrop": 0.0, "decoder_layers": 12}
BART |= {"encoder_attention_heads": 16, "encoder_ffn_dim": 4096, "encoder_layerdrop": 0.0, "encoder_layers": 12}
BART |= {"decoder_start_token_id": 2, "early_stopping": True, "eos_token_id": 2, "gradient_checkpointing": False}
BART |= {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "init_std": 0.02, "is_encoder_decoder": True}
BART |= {"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "max_position_embeddings": 1024}
BART |= {"model_type": "bart", "normalize_before": False, "num_beams": 4, "num_hidden_layers": 12, "pad_token_id": 1}
BART |= {"no_repeat_ngram_size": 3, "scale_embedding": False, "use_cache": True, "forced_eos_token_id": 2}
BART |= {"architectures": ["BartForConditionalGeneration"]}
SMALL_BART = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {"attention_heads": 12, "ffn_dim": 3072, "layers": 6}.items()
}
GPT2 = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1}
GPT2 |= {"bos_token_id": 50_256, "embd_pdrop": 0.1, "eos_token_id": 50_256, "initializer_range": 0.02}
GPT2 |= {"layer_norm_epsilon": 1e-5, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12}
GPT2 |= {"n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1}
GPT2 |= {"summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50_257}
GPT2 |= {"task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}}
LLAMA = {"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu"}
LLAMA |= {"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11_008, "model_type": "llama"}
LLAMA |= {"max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
LLAMA |= {"num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_scaling": None}
LLAMA |= {"tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.31.0.dev0"}
LLAMA |= {"use_cache": True, "vocab_size": 32_000}
GEMMA = {"attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2, "eos_token_id": 1, "head_dim": 256}
GEMMA |= {"initializer_range": 0.02, "pad_token_id": 0, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0}
GEMMA |= {"torch_dtype": "bfloat16", "use_cache": True}
QWEN = {"attention_dropout": 0.0, "bos_token_id": 151_643, "eos_token_id": 151_645, "hidden_act": "silu"}
QWEN |= {"initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0, "tie_word_embeddings": False}
QWEN |= {"torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False}
PEGASUS = {"activation_function": "relu", "add_bias_logits": False, "normalize_before": True}
PEGASUS |= {"add_final_layer_norm": True, "normalize_embedding": False, "static_position_embeddings": True}
PEGASUS |= {"extra_pos_embeddings": 1, "scale_embedding": True, "vocab_size": 96_103, "model_type": "pegasus"}
PEGASUS |= {"architectures": ["PegasusForConditionalGeneration"], "force_bos_token_to_be_generated": False}

DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
DEEPSEEK |= {"hidden_act": "silu", "initializer_range": 0.02, "kv_lora_rank": 512, "model_type": "deepseek_v3"}
DEEPSEEK |= {"moe_layer_freq": 1, "norm_topk_prob": True, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
DEEPSEEK |= {"scoring_func": "sigmoid", "tie_word_embeddings": False, "topk_method": "noaux_tc", "use_cache": True}
DEEPSEEK |= {"torch_dtype": "bfloat16", "v_head_dim": 128}

TWO_ROWS = 2 * 768
"""Positions that are reserved for padding, which are in the files and not in ours."""


def shape(width: int, hidden: int, layers: int, heads: int, kv_heads: int, length: int, vocabulary: int) -> dict:
    """Sizes under the names that most files give them."""
    names = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads"
    values = (width, hidden, layers, heads, kv_heads, length, vocabulary)
    return dict(zip([*names.split(), "max_position_embeddings", "vocab_size"], values, strict=True))


PUBLISHED: dict[str, tuple[int | None, dict[str, Any]]] = {
    "bert-base-uncased": (
        109_514_298,
        BERT
        | {"gradient_checkpointing": False, "position_embedding_type": "absolute", "vocab_size": 30_522}
        | {"transformers_version": "4.6.0.dev0", "use_cache": True},
    ),
    "bert-base-multilingual-cased": (
        None,
        BERT
        | {"directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12}
        | {"pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform"}
        | {"vocab_size": 119_547},
    ),
    "textattack/bert-base-uncased-SST-2": (
        109_483_778,
        BERT | {"architectures": ["BertForSequenceClassification"], "finetuning_task": "sst-2", "vocab_size": 30_522},
    ),
    "roberta-base": (124_697_433 - TWO_ROWS, ROBERTA),
    "cardiffnlp/twitter-roberta-base-sentiment": (
        124_647_939 - TWO_ROWS,
        ROBERTA
        | {"architectures": ["RobertaForSequenceClassification"], "gradient_checkpointing": False}
        | {"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}}
        | {"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}},
    ),
    "xlm-roberta-base": (
        278_295_186 - TWO_ROWS,
        ROBERTA
        | {"architectures": ["XLMRobertaForMaskedLM"], "model_type": "xlm-roberta", "output_past": True}
        | {"vocab_size": 250_002, "position_embedding_type": "absolute", "use_cache": True},
    ),
    "cardiffnlp/twitter-xlm-roberta-base-sentiment": (
        278_045_955 - TWO_ROWS,
        ROBERTA
        | {"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta"}
        | {"id2label": {"0": "negative", "1": "neutral", "2": "positive"}, "output_past": True}
        | {"label2id": {"negative": 0, "neutral": 1, "positive": 2}, "vocab_size": 250_002},
    ),
    "distilbert-base-uncased": (
        66_985_530,
        {"activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1, "dim": 768}
        | {"dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02, "max_position_embeddings": 512}
        | {"model_type": "distilbert", "n_heads": 12, "n_layers": 6, "pad_token_id": 0, "qa_dropout": 0.1}
        | {"seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True, "vocab_size": 30_522},
    ),
    "junnyu/roformer_chinese_base": (
        None,
        BERT
        | {"architectures": ["RoFormerForMaskedLM"], "model_type": "roformer", "embedding_size": 768}
        | {"max_position_embeddings": 1536, "vocab_size": 50_000, "rotary_value": False, "use_cache": True},
    ),
    "answerdotai/ModernBERT-base": (
        149_655_232,
        {"architectures": ["ModernBertForMaskedLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"bos_token_id": 50_281, "classifier_activation": "gelu", "classifier_bias": False, "classifier_dropout": 0.0}
        | {"classifier_pooling": "mean", "cls_token_id": 50_281, "decoder_bias": True, "embedding_dropout": 0.0}
        | {"deterministic_flash_attn": False, "eos_token_id": 50_282, "global_attn_every_n_layers": 3}
        | {"global_rope_theta": 160_000.0, "gradient_checkpointing": False, "hidden_activation": "gelu"}
        | {"hidden_size": 768, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 1152}
        | {"layer_norm_eps": 1e-5, "local_attention": 128, "local_rope_theta": 10_000.0, "mlp_bias": False}
        | {"max_position_embeddings": 8192, "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": False}
        | {"norm_eps": 1e-5, "num_attention_heads": 12, "num_hidden_layers": 22, "pad_token_id": 50_283}
        | {"position_embedding_type": "absolute", "sep_token_id": 50_282, "tie_word_embeddings": True}
        | {"torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 50_368},
    ),
    "t5-small": (
        60_506_624,
        {"architectures": ["T5ForConditionalGeneration"], "d_ff": 2048, "d_kv": 64, "d_model": 512}
        | {"decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0}
        | {"is_encoder_decoder": True, "layer_norm_epsilon": 1e-6, "model_type": "t5", "n_positions": 512}
        | {"num_heads": 8, "num_layers": 6, "output_past": True, "pad_token_id": 0, "vocab_size": 32_128}
        | {"relative_attention_num_buckets": 32, "task_specific_params": {"summarization": {"num_beams": 4}}},
    ),
    "google/flan-t5-small": (
        76_961_152,
        {"architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64, "d_model": 512}
        | {"decoder_start_token_id": 0, "dense_act_fn": "gelu_new", "feed_forward_proj": "gated-gelu"}
        | {"dropout_rate": 0.1, "eos_token_id": 1, "initializer_factor": 1.0, "is_encoder_decoder": True}
        | {"is_gated_act": True, "layer_norm_epsilon": 1e-6, "model_type": "t5", "n_positions": 512, "num_heads": 6}
        | {"num_decoder_layers": 8, "num_layers": 8, "output_past": True, "pad_token_id": 0, "use_cache": True}
        | {"relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "vocab_size": 32_128}
        | {"tie_word_embeddings": False},
    ),
    "facebook/bart-large-cnn": (
        None,
        BART
        | {"force_bos_token_to_be_generated": True, "forced_bos_token_id": 0, "length_penalty": 2.0}
        | {"max_length": 142, "min_length": 56, "output_past": True, "prefix": " ", "vocab_size": 50_264}
        | {"task_specific_params": {"summarization": {"early_stopping": True}}},
    ),
    "facebook/bart-base": (
        139_420_416 + 50_265 - 2 * TWO_ROWS,
        BART
        | SMALL_BART
        | {"add_bias_logits": False, "architectures": ["BartModel"], "classifier_dropout": 0.0}
        | {"d_model": 768, "normalize_embedding": True, "num_hidden_layers": 6, "vocab_size": 50_265}
        | {"forced_bos_token_id": 0, "torch_dtype": "float32"},
    ),
    "Helsinki-NLP/opus-mt-en-de": (
        None,
        BART
        | {
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in {"attention_heads": 8, "ffn_dim": 2048, "layers": 6}.items()
        }
        | {"activation_function": "swish", "add_bias_logits": False, "architectures": ["MarianMTModel"]}
        | {"bad_words_ids": [[58_100]], "classifier_dropout": 0.0, "d_model": 512, "decoder_start_token_id": 58_100}
        | {"decoder_vocab_size": 58_101, "max_length": 512, "max_position_embeddings": 512, "model_type": "marian"}
        | {"normalize_embedding": False, "num_beams": 6, "num_hidden_layers": 6, "pad_token_id": 58_100}
        | {"scale_embedding": True, "share_encoder_decoder_embeddings": True, "static_position_embeddings": True}
        | {"vocab_size": 58_101, "eos_token_id": 0, "forced_eos_token_id": 0},
    ),
    "facebook/mbart-large-cc25": (
        None,
        BART
        | {"add_bias_logits": False, "add_final_layer_norm": True, "architectures": ["MBartForConditionalGeneration"]}
        | {"classifier_dropout": 0.0, "max_length": 1024, "model_type": "mbart", "normalize_before": True}
        | {"normalize_embedding": True, "num_beams": 5, "output_past": True, "scale_embedding": True}
        | {"static_position_embeddings": False, "vocab_size": 250_027},
    ),
    "google/pegasus-xsum": (
        None,
        BART
        | PEGASUS
        | {"decoder_layers": 16, "encoder_layers": 16, "num_hidden_layers": 16, "length_penalty": 0.6}
        | {"max_position_embeddings": 512, "num_beams": 8, "pad_token_id": 0, "eos_token_id": 1, "max_length": 64},
    ),
    "gpt2": (124_439_808, GPT2),
    "distilgpt2": (81_912_576, GPT2 | {"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "n_layer": 6}),
    "bigcode/gpt_bigcode-santacoder": (
        None,
        {"activation_function": "gelu_fast", "architectures": ["GPTBigCodeForCausalLM"], "attn_pdrop": 0.1}
        | {"attention_softmax_in_fp32": True, "bos_token_id": 49_152, "embd_pdrop": 0.1, "eos_token_id": 49_152}
        | {"inference_runner": 0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "max_batch_size": None}
        | {"max_sequence_length": None, "model_type": "gpt_bigcode", "multi_query": True, "n_embd": 2048, "n_head": 16}
        | {"n_inner": 8192, "n_layer": 24, "n_positions": 2048, "pad_key_length": True, "pre_allocate_kv_cache": False}
        | {"resid_pdrop": 0.1, "scale_attention_softmax_in_fp32": True, "scale_attn_weights": True}
        | {"summary_activation": None, "summary_use_proj": True, "validate_runner_input": True, "vocab_size": 49_280},
    ),
    "EleutherAI/gpt-neo-125m": (
        125_198_592,
        {"activation_function": "gelu_new", "architectures": ["GPTNeoForCausalLM"], "attention_dropout": 0}
        | {"attention_layers": ["global", "local"] * 6, "attention_types": [[["global", "local"], 6]]}
        | {"bos_token_id": 50_256, "embed_dropout": 0, "eos_token_id": 50_256, "gradient_checkpointing": False}
        | {"hidden_size": 768, "initializer_range": 0.02, "intermediate_size": None, "layer_norm_epsilon": 1e-5}
        | {"max_position_embeddings": 2048, "model_type": "gpt_neo", "num_heads": 12, "num_layers": 12}
        | {"resid_dropout": 0, "summary_activation": None, "summary_type": "cls_index", "vocab_size": 50_257}
        | {"window_size": 256, "use_cache": True},
    ),
    "EleutherAI/gpt-j-6b": (
        6_050_882_784,
        GPT2
        | {"architectures": ["GPTJForCausalLM"], "gradient_checkpointing": False, "model_type": "gptj"}
        | {"n_embd": 4096, "n_head": 16, "n_inner": None, "n_layer": 28, "n_positions": 2048, "rotary": True}
        | {"n_ctx": 2048, "rotary_dim": 64, "scale_attn_weights": True, "tie_word_embeddings": False}
        | {"tokenizer_class": "GPT2Tokenizer", "vocab_size": 50_400},
    ),
    "EleutherAI/pythia-70m": (
        70_426_624,
        {"architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu"}
        | {"hidden_size": 512, "initializer_range": 0.02, "intermediate_size": 2048, "layer_norm_eps": 1e-5}
        | {"max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8}
        | {"num_hidden_layers": 6, "rotary_emb_base": 10_000, "rotary_pct": 0.25, "tie_word_embeddings": False}
        | {"use_parallel_residual": True, "vocab_size": 50_304},
    ),
    "facebook/opt-125m": (
        125_239_296 - TWO_ROWS,
        {"_remove_final_layer_norm": False, "activation_dropout": 0.0, "activation_function": "relu"}
        | {"architectures": ["OPTForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 2, "dropout": 0.1}
        | {"do_layer_norm_before": True, "eos_token_id": 2, "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02}
        | {"layerdrop": 0.0, "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12}
        | {"num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>", "vocab_size": 50_272}
        | {"word_embed_proj_dim": 768},
    ),
    "bigscience/bloom-560m": (
        559_214_592,
        {"apply_residual_connection_post_layernorm": False, "architectures": ["BloomForCausalLM"], "n_head": 16}
        | {"attention_dropout": 0.0, "attention_softmax_in_fp32": True, "bias_dropout_fusion": True, "bos_token_id": 1}
        | {"eos_token_id": 2, "hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-5}
        | {"masked_softmax_fusion": True, "model_type": "bloom", "n_embed": 1024, "n_inner": None, "n_layer": 24}
        | {"offset_alibi": 100, "pad_token_id": 3, "pretraining_tp": 1, "skip_bias_add": True, "unk_token_id": 0}
        | {"skip_bias_add_qkv": False, "slow_but_exact": False, "vocab_size": 250_880, "use_cache": True},
    ),
    "mosaicml/mpt-7b": (
        6_649_286_656,
        {"architectures": ["MPTForCausalLM"], "d_model": 4096, "emb_pdrop": 0, "embedding_fraction": 1.0}
        | {
            "attn_config": {"alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0}
            | {"attn_type": "multihead_attention", "attn_uses_sequence_id": False, "clip_qkv": None}
            | {"prefix_lm": False, "qk_ln": False, "softmax_scale": None}
        }
        | {"auto_map": {"AutoConfig": "configuration_mpt.MPTConfig"}, "expansion_ratio": 4, "init_device": "cpu"}
        | {"init_config": {"init_std": 0.02, "name": "kaiming_normal_"}, "learned_pos_emb": True, "logit_scale": None}
        | {"max_seq_len": 2048, "model_type": "mpt", "n_heads": 32, "n_layers": 32, "no_bias": True, "verbose": 0}
        | {"norm_type": "low_precision_layernorm", "resid_pdrop": 0, "tokenizer_name": "EleutherAI/gpt-neox-20b"}
        | {"use_cache": False, "vocab_size": 50_432},
    ),
    "tiiuae/falcon-7b": (
        6_921_720_704,
        {"alibi": False, "apply_residual_connection_post_layernorm": False, "architectures": ["FalconForCausalLM"]}
        | {"attention_dropout": 0.0, "auto_map": {"AutoModel": "modeling_falcon.FalconModel"}, "bias": False}
        | {"bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 4544}
        | {"initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "model_type": "falcon", "multi_query": True}
        | {"new_decoder_architecture": False, "num_attention_heads": 71, "num_hidden_layers": 32}
        | {"parallel_attn": True, "vocab_size": 65_024, "torch_dtype": "bfloat16"},
    ),
    "microsoft/phi-2": (
        2_779_683_840,
        shape(2560, 10_240, 32, 32, 32, 2048, 51_200)
        | {"architectures": ["PhiForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 50_256, "embd_pdrop": 0.0}
        | {"eos_token_id": 50_256, "hidden_act": "gelu_new", "initializer_range": 0.02, "layer_norm_eps": 1e-5}
        | {"model_type": "phi", "partial_rotary_factor": 0.4, "qk_layernorm": False, "resid_pdrop": 0.1}
        | {"rope_scaling": None, "rope_theta": 10_000.0, "tie_word_embeddings": False},
    ),
    "microsoft/Phi-3-mini-4k-instruct": (
        3_821_079_552,
        shape(3072, 8192, 32, 32, 32, 4096, 32_064)
        | {"architectures": ["Phi3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"auto_map": {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}, "bos_token_id": 1, "embd_pdrop": 0.0}
        | {"eos_token_id": 32_000, "hidden_act": "silu", "initializer_range": 0.02, "model_type": "phi3"}
        | {"original_max_position_embeddings": 4096, "pad_token_id": 32_000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-5}
        | {"rope_scaling": None, "rope_theta": 10_000.0, "sliding_window": 2047, "tie_word_embeddings": False},
    ),
    "bigcode/starcoder2-3b": (
        3_030_371_328,
        shape(3072, 12_288, 30, 24, 2, 16_384, 49_152)
        | {"activation_function": "gelu", "architectures": ["Starcoder2ForCausalLM"], "attention_dropout": 0.1}
        | {"attention_softmax_in_fp32": True, "bos_token_id": 0, "embedding_dropout": 0.1, "eos_token_id": 0}
        | {"hidden_act": "gelu_pytorch_tanh", "initializer_range": 0.018042, "layer_norm_epsilon": 1e-5}
        | {"mlp_type": "default", "model_type": "starcoder2", "norm_epsilon": 1e-5, "norm_type": "layer_norm"}
        | {"residual_dropout": 0.1, "rope_theta": 999_999.4420358813, "scale_attention_softmax_in_fp32": True}
        | {"scale_attn_weights": True, "sliding_window": 4096, "use_bias": True, "use_cache": True},
    ),
    "adept/persimmon-8b-base": (
        None,
        shape(4096, 16_384, 36, 64, 64, 16_384, 262_144)
        | {"architectures": ["PersimmonForCausalLM"], "attention_dropout": 0.0, "hidden_act": "relu2"}
        | {"hidden_dropout": 0.0, "initializer_range": 0.02, "layer_norm_eps": 1e-5, "model_type": "persimmon"}
        | {"partial_rotary_factor": 0.5, "qk_layernorm": True, "rope_scaling": None, "rope_theta": 25_000.0}
        | {"tie_word_embeddings": False},
    ),
    "meta-llama/Llama-2-7b-hf": (6_738_415_616, LLAMA),
    "meta-llama/Llama-3.1-8B": (
        8_030_261_248,
        LLAMA
        | shape(4096, 14_336, 32, 32, 8, 131_072, 128_256)
        | {"attention_bias": False, "attention_dropout": 0.0, "eos_token_id": [128_001, 128_008], "mlp_bias": False}
        | {
            "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"}
            | {"original_max_position_embeddings": 8192}
        }
        | {"rope_theta": 500_000.0},
    ),
    "mistralai/Mistral-7B-v0.1": (
        7_241_732_096,
        LLAMA
        | shape(4096, 14_336, 32, 32, 8, 32_768, 32_000)
        | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rope_theta": 10_000.0}
        | {"sliding_window": 4096},
    ),
    "mistralai/Mistral-7B-Instruct-v0.3": (
        7_248_023_552,
        LLAMA
        | shape(4096, 14_336, 32, 32, 8, 32_768, 32_768)
        | {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "rope_theta": 1e6, "head_dim": None}
        | {"sliding_window": None, "attention_dropout": 0.0},
    ),
    "mistralai/Mixtral-8x7B-v0.1": (
        46_702_792_704,
        LLAMA
        | shape(4096, 14_336, 32, 32, 8, 32_768, 32_000)
        | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_experts_per_tok": 2}
        | {"num_local_experts": 8, "output_router_logits": False, "rope_theta": 1e6, "router_aux_loss_coef": 0.02}
        | {"sliding_window": None, "attention_dropout": 0.0},
    ),
    "Qwen/Qwen2.5-7B": (
        7_615_616_512,
        QWEN
        | shape(3584, 18_944, 28, 28, 4, 131_072, 152_064)
        | {"architectures": ["Qwen2ForCausalLM"], "max_window_layers": 28, "model_type": "qwen2"}
        | {"sliding_window": 131_072, "use_mrope": False},
    ),
    "Qwen/Qwen3-8B": (
        8_190_735_360,
        QWEN
        | shape(4096, 12_288, 36, 32, 8, 40_960, 151_936)
        | {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128, "max_window_layers": 36}
        | {"model_type": "qwen3", "rope_scaling": None, "sliding_window": None},
    ),
    "Qwen/Qwen3-30B-A3B": (
        30_532_122_624,
        QWEN
        | shape(2048, 6144, 48, 32, 4, 40_960, 151_936)
        | {"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128}
        | {"max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768}
        | {"norm_topk_prob": True, "num_experts": 128, "num_experts_per_tok": 8, "output_router_logits": False}
        | {"rope_scaling": None, "router_aux_loss_coef": 0.001, "sliding_window": None},
    ),
    "google/gemma-2b": (
        2_506_172_416,
        GEMMA
        | shape(2048, 16_384, 18, 8, 1, 8192, 256_000)
        | {"architectures": ["GemmaForCausalLM"], "hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}
        | {"model_type": "gemma", "rope_scaling": None},
    ),
    "google/gemma-2-2b": (
        2_614_341_888,
        GEMMA
        | shape(2304, 9216, 26, 8, 4, 8192, 256_000)
        | {"architectures": ["Gemma2ForCausalLM"], "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid"}
        | {"final_logit_softcapping": 30.0, "hidden_act": "gelu_pytorch_tanh", "model_type": "gemma2"}
        | {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "sliding_window": 4096},
    ),
    "google/gemma-3-1b-it": (
        None,
        GEMMA
        | shape(1152, 6912, 26, 4, 1, 32_768, 262_144)
        | {"architectures": ["Gemma3ForCausalLM"], "attn_logit_softcapping": None, "cache_implementation": "hybrid"}
        | {"eos_token_id": [1, 106], "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh"}
        | {"model_type": "gemma3_text", "query_pre_attn_scalar": 256, "rope_local_base_freq": 10_000}
        | {"rope_scaling": None, "rope_theta": 1_000_000, "sliding_window": 512, "sliding_window_pattern": 6},
    ),
    "allenai/OLMo-1B-hf": (
        1_176_764_416,
        shape(2048, 8192, 16, 16, 16, 2048, 50_304)
        | {"architectures": ["OlmoForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None}
        | {"eos_token_id": 50_279, "hidden_act": "silu", "initializer_range": 0.02, "model_type": "olmo"}
        | {"pad_token_id": 1, "pretraining_tp": 1, "rope_scaling": None, "rope_theta": 10_000.0, "use_cache": True}
        | {"tie_word_embeddings": True},
    ),
    "allenai/OLMo-2-1124-7B": (
        7_298_617_344,
        shape(4096, 11_008, 32, 32, 32, 4096, 100_352)
        | {"architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"eos_token_id": 100_257, "hidden_act": "silu", "initializer_range": 0.02, "model_type": "olmo2"}
        | {"pad_token_id": 100_277, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 500_000}
        | {"tie_word_embeddings": False},
    ),
    "allenai/OLMoE-1B-7B-0924": (
        6_919_161_856,
        {"architectures": ["OlmoeForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None}
        | {"eos_token_id": 50_279, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02}
        | {"intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe", "norm_topk_prob": False}
        | {"num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16}
        | {"num_key_value_heads": 16, "output_router_logits": False, "pad_token_id": 1, "rms_norm_eps": 1e-5}
        | {"rope_scaling": None, "rope_theta": 10_000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": False}
        | {"torch_dtype": "bfloat16", "transformers_version": "4.43.0.dev0", "use_cache": True, "vocab_size": 50_304},
    ),
    "stabilityai/stablelm-3b-4e1t": (
        2_795_443_200,
        shape(2560, 6912, 32, 32, 32, 4096, 50_304)
        | {"architectures": ["StableLmForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu"}
        | {"initializer_range": 0.02, "layer_norm_eps": 1e-5, "model_type": "stablelm", "partial_rotary_factor": 0.25}
        | {"rope_theta": 10_000, "tie_word_embeddings": False, "use_qkv_bias": False},
    ),
    "nvidia/Minitron-4B-Base": (
        None,
        shape(3072, 9216, 32, 24, 8, 4096, 256_000)
        | {"architectures": ["NemotronForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"bos_token_id": 2, "eos_token_id": 3, "head_dim": 128, "hidden_act": "relu2", "initializer_range": 0.0134}
        | {"mlp_bias": False, "model_type": "nemotron", "norm_eps": 1e-5, "partial_rotary_factor": 0.5}
        | {"rope_theta": 10_000.0, "tie_word_embeddings": False},
    ),
    "CohereForAI/c4ai-command-r-v01": (
        34_980_831_232,
        shape(8192, 22_528, 40, 64, 64, 8192, 256_000)
        | {"architectures": ["CohereForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"bos_token_id": 5, "eos_token_id": 255_001, "hidden_act": "silu", "initializer_range": 0.02}
        | {"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "model_type": "cohere", "pad_token_id": 0}
        | {"rope_theta": 8_000_000.0, "use_qk_norm": False},
    ),
    "CohereForAI/c4ai-command-r7b-12-2024": (
        8_028_033_024,
        shape(4096, 14_336, 32, 32, 8, 8192, 256_000)
        | {"architectures": ["Cohere2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"bos_token_id": 5, "cache_implementation": "hybrid", "eos_token_id": 255_001, "head_dim": 128}
        | {"hidden_act": "silu", "layer_norm_eps": 1e-5, "logit_scale": 0.25, "model_type": "cohere2"}
        | {
            "order_of_interleaved_layers": "local_attn_first",
            "pad_token_id": 0,
            "rope_theta": 50_000,
            "rotary_pct": 1.0,
        }
        | {"position_embedding_type": "rope_gptj", "rope_scaling": None, "sliding_window": 4096}
        | {"sliding_window_pattern": 4, "use_embedding_sharing": True, "use_gated_activation": True}
        | {"use_parallel_block": True, "use_parallel_embedding": True},
    ),
    "THUDM/glm-4-9b-chat-hf": (
        9_399_951_360,
        shape(4096, 13_696, 40, 32, 2, 131_072, 151_552)
        | {"architectures": ["GlmForCausalLM"], "attention_bias": True, "attention_dropout": 0.0, "head_dim": 128}
        | {"eos_token_id": [151_329, 151_336], "hidden_act": "silu", "initializer_range": 0.02, "model_type": "glm"}
        | {"pad_token_id": 151_329, "partial_rotary_factor": 0.5, "rms_norm_eps": 1.5625e-7, "rope_theta": 10_000.0}
        | {"tie_word_embeddings": False},
    ),
    "THUDM/GLM-4-9B-0414": (
        9_400_279_040,
        shape(4096, 13_696, 40, 32, 2, 32_768, 151_552)
        | {"architectures": ["Glm4ForCausalLM"], "attention_bias": True, "attention_dropout": 0.0, "head_dim": 128}
        | {"eos_token_id": [151_329, 151_336], "hidden_act": "silu", "initializer_range": 0.02, "model_type": "glm4"}
        | {"pad_token_id": 151_329, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "rope_theta": 10_000.0}
        | {"tie_word_embeddings": False},
    ),
    "kyutai/helium-1-preview-2b": (
        None,
        shape(2560, 7040, 24, 20, 20, 4096, 48_000)
        | {"architectures": ["HeliumForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "head_dim": 128}
        | {"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "initializer_range": 0.02, "mlp_bias": False}
        | {"model_type": "helium", "pad_token_id": 3, "rms_norm_eps": 1e-8, "rope_theta": 100_000.0}
        | {"tie_word_embeddings": False},
    ),
    "HuggingFaceTB/SmolLM3-3B": (
        3_075_098_624,
        LLAMA
        | shape(2048, 11_008, 36, 16, 4, 65_536, 128_256)
        | {"architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0}
        | {"layer_types": ["full_attention"] * 36, "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3"}
        | {"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9, "pretraining_tp": 2, "rms_norm_eps": 1e-6}
        | {"rope_theta": 5_000_000.0, "sliding_window": None, "use_sliding_window": False, "tie_word_embeddings": True},
    ),
    "unsloth/gpt-oss-20b-BF16": (
        20_914_757_184,
        {"architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0}
        | {"eos_token_id": 200_002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880}
        | {"initial_context_length": 4096, "initializer_range": 0.02, "intermediate_size": 2880}
        | {"layer_types": ["sliding_attention", "full_attention"] * 12, "max_position_embeddings": 131_072}
        | {"model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24}
        | {"num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": False, "pad_token_id": 199_999}
        | {"rms_norm_eps": 1e-5, "rope_theta": 150_000, "router_aux_loss_coef": 0.9, "sliding_window": 128}
        | {
            "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn"}
            | {"original_max_position_embeddings": 4096, "truncate": False}
        }
        | {"swiglu_limit": 7.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True}
        | {"transformers_version": "4.55.0.dev0", "vocab_size": 201_088},
    ),
    "moonshotai/Moonlight-16B-A3B": (
        15_960_110_208,
        DEEPSEEK
        | {"auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001}
        | {"bos_token_id": 163_584, "eos_token_id": 163_585, "first_k_dense_replace": 1, "hidden_size": 2048}
        | {"intermediate_size": 11_264, "max_position_embeddings": 8192, "moe_intermediate_size": 1408, "n_group": 1}
        | {"n_routed_experts": 64, "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6}
        | {"num_hidden_layers": 27, "num_key_value_heads": 16, "num_nextn_predict_layers": 0, "pretraining_tp": 1}
        | {"q_lora_rank": None, "rms_norm_eps": 1e-5, "rope_theta": 50_000.0, "routed_scaling_factor": 2.446}
        | {"seq_aux": True, "topk_group": 1, "transformers_version": "4.48.3", "vocab_size": 163_840},
    ),
    "unsloth/DeepSeek-V3-bf16": (
        671_026_419_200,
        DEEPSEEK
        | {"bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_size": 7168}
        | {"intermediate_size": 18_432, "max_position_embeddings": 163_840, "moe_intermediate_size": 2048}
        | {"n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128}
        | {"num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536}
        | {"num_nextn_predict_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 10_000, "routed_scaling_factor": 2.5}
        | {
            "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
            | {"original_max_position_embeddings": 4096, "type": "yarn"}
        }
        | {"topk_group": 4, "transformers_version": "4.33.1", "vocab_size": 129_280},
    ),
    "mistralai/Mamba-Codestral-7B-v0.1": (
        7_285_403_648,
        {"architectures": ["Mamba2ForCausalLM"], "bos_token_id": 0, "chunk_size": 256, "conv_kernel": 4}
        | {"eos_token_id": 0, "expand": 2, "head_dim": 64, "hidden_act": "silu", "hidden_size": 4096}
        | {"initializer_range": 0.1, "intermediate_size": 8192, "layer_norm_epsilon": 1e-5, "model_type": "mamba2"}
        | {"n_groups": 8, "norm_before_gate": True, "num_heads": 128, "num_hidden_layers": 64, "pad_token_id": 0}
        | {"rescale_prenorm_residual": False, "residual_in_fp32": True, "rms_norm": True, "state_size": 128}
        | {"tie_word_embeddings": False, "time_step_floor": 0.0001, "time_step_init_scheme": "random"}
        | {"time_step_limit": [0.0, math.inf], "time_step_max": 0.1, "time_step_min": 0.001, "time_step_rank": 256}
        | {"time_step_scale": 1.0, "use_bias": False, "use_conv_bias": True, "vocab_size": 32_768},
    ),
    "NX-AI/xLSTM-7b": (
        6_865_424_896,
        {"architectures": ["xLSTMForCausalLM"], "model_type": "xlstm", "embedding_dim": 4096, "num_heads": 8}
        | {"num_blocks": 32, "vocab_size": 50_304, "qk_dim_factor": 0.5, "v_dim_factor": 1.0, "norm_eps": 1e-6}
        | {"ffn_proj_factor": 2.667, "ffn_round_up_to_multiple_of": 64, "gate_soft_cap": 15.0, "use_bias": False}
        | {"output_logit_soft_cap": 30.0, "add_out_norm": True, "weight_mode": "single", "tie_word_embeddings": False},
    ),
    "google/vit-base-patch16-224": (
        86_567_656,
        {"architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0, "encoder_stride": 16}
        | {"hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 768, "image_size": 224, "model_type": "vit"}
        | {"id2label": {str(i): f"class {i}" for i in range(1000)}, "initializer_range": 0.02, "qkv_bias": True}
        | {"label2id": {f"class {i}": i for i in range(1000)}, "intermediate_size": 3072, "layer_norm_eps": 1e-12}
        | {"num_attention_heads": 12, "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16},
    ),
}
"""By name: how many parameters the model has, where that is known, and its fields."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_config_of_a_published_model_is_read(name, tmp_path):
    count, fields = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    config = load_config(tmp_path)
    assert count is None or count == sum(math.prod(leaf.shape) for leaf in flat(pure_model(config)[0]).values())


def test_of_every_architecture():
    """But for those whose published models are of other sizes or not of dense layers alone."""
    named = {_named(fields).names[0] for _, fields in PUBLISHED.values()}
    without = {"BambaForCausalLM", "Qwen3NextForCausalLM", "OlmoHybridForCausalLM"}
    assert named | without == {architecture.names[0] for architecture in ARCHITECTURES}


def _named(fields: dict[str, Any]) -> Architecture:
    return next(one for one in ARCHITECTURES if fields["architectures"][0] in one.names)
