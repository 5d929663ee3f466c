"""MPT (MosaicML 2023)."""

from transformer.activations.activation import GELU
from transformer.core.errors import ConfigError
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm
from transformer.positions.relative import ALiBi
from transformer.pretrained.architecture import QKV, Architecture, Row, dense, joined, norm
from transformer.pretrained.fields import Field, fixed, same

_LAYER = "transformer.blocks.{layer}"
_PLAIN = {"clip_qkv": None, "softmax_scale": None, "prefix_lm": False, "qk_ln": False, "alibi": True}
_PLAIN |= {"alibi_bias_max": 8, "attn_type": "multihead_attention", "attn_uses_sequence_id": False}
_OF_ITS_OWN_CODE = {"sliding_window_size": -1, "rope": False, "qk_gn": False, "kv_n_heads": None}
"""What llm-foundry's class of that name reads besides, where it does nothing."""


def _attention() -> Field:
    """What is said of attention, of which only one value each is supported."""

    def read(fields):
        said = fields.get("attn_config") or {}
        for name, value in (_PLAIN | _OF_ITS_OWN_CODE).items():
            if said.get(name, value) != value:
                raise ConfigError(f"attn_config.{name}: {said[name]!r} is not supported, only {value!r}")
        return {}

    return Field(("attn_config",), read, lambda config: {"attn_config": _PLAIN})


MPT = Architecture(
    names=("MptForCausalLM", "MPTForCausalLM"),
    model_type="mpt",
    base=ModelConfig(norm=LayerNorm(bias=False), position=ALiBi(), feed_forward=FeedForward(activation=GELU())),
    fields=(
        same("vocab_size", "vocab_size", default=50_368),
        same("max_seq_len", "max_length", default=2048),
        same("d_model", "d_model", default=2048),
        same("n_layers", "num_layers", default=24),
        same("n_heads", "mixer.num_heads", default=16),
        same("layer_norm_epsilon", "norm.eps", default=1e-5),
        same("tie_word_embeddings", "head.tied", default=True),
        _attention(),
        fixed("expansion_ratio", 4),
        fixed("no_bias", True),
        fixed("logit_scale", None),
    ),
    # Nothing reads the first three.
    neutral="learned_pos_emb|norm_type|embedding_fraction|init_(device|config)|tokenizer_name|verbose|attn_impl"
    "|use_pad_tok_in_ffn|fc_type|ffn_config",
    rows=(
        Row("embedding/table", "transformer.wte.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        *norm("final_norm", "transformer.norm_f"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.norm_1"),
        *joined(QKV, f"{_LAYER}.attn.Wqkv"),
        *dense("blocks/attention/out", f"{_LAYER}.attn.out_proj"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.norm_2"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.ffn.up_proj"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.ffn.down_proj"),
    ),
)
