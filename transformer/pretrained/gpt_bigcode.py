"""GPT-BigCode: SantaCoder (Ben Allal et al. 2023) and StarCoder (Li R. et al. 2023), GPT-2 with one key-value head."""

from transformer.pretrained import gpt2
from transformer.pretrained.architecture import QKV, Architecture, Row, dense, joined, norm
from transformer.pretrained.fields import ACTIVATIONS, choice, fixed

_LAYER = "transformer.h.{layer}"

GPT_BIGCODE = Architecture(
    names=("GPTBigCodeForCausalLM",),
    model_type="gpt_bigcode",
    base=gpt2.GPT2.base.replace({"mixer.num_kv_heads": 1}),
    fields=(
        *gpt2.SIZES,
        choice("activation_function", "feed_forward.activation", ACTIVATIONS, default="gelu_pytorch_tanh"),
        fixed("multi_query", True),
        fixed("scale_attn_weights", True),
        fixed("add_cross_attention", False),
    ),
    neutral=r"(scale_)?attention_softmax_in_fp32|summary_\w+|num_key_value_heads|inference_runner|pre_allocate_kv_cache|pad_key_length"
    r"|validate_runner_input|max_(batch_size|sequence_length)",
    rows=(
        Row("embedding/table", "transformer.wte.weight", also=("lm_head.weight",)),
        Row("output/table", "lm_head.weight"),
        Row("position/table", "transformer.wpe.weight"),
        *norm("final_norm", "transformer.ln_f"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.ln_1"),
        *joined(QKV, f"{_LAYER}.attn.c_attn"),
        *dense("blocks/attention/out", f"{_LAYER}.attn.c_proj"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.ln_2"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.mlp.c_fc"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.mlp.c_proj"),
    ),
    ignored=r".*\.attn\.bias",
)
