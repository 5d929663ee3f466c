"""Words of papers and of other libraries, and ours; errors name these."""

from collections.abc import Mapping

FIELDS: Mapping[str, str] = {
    "lr": "learning_rate",
    "wd": "weight_decay",
    "dim": "d_model",
    "n_embd": "d_model",
    "hidden_size": "d_model",
    "width": "d_model",
    "depth": "num_layers",
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "block_size": "max_length",
    "context_length": "max_length",
    "seq_len": "max_length",
    "epochs": "steps",
    "theta": "base",
    "blocks": "pattern",
    "mixers": "pattern",
    "SwiGLU": "GLU",
    "MultiHeadAttention": "Attention",
    "num_parameters": "parameter_count",
}
"""Names of fields, classes and functions."""

FORMS: Mapping[str, Mapping[str, str]] = {
    "Activation": {
        "bilinear": "glu(gate=linear)",
        "geglu": "glu(gate=gelu)",
        "gelu_new": "gelu(tanh=True)",
        "gelu_pytorch_tanh": "gelu(tanh=True)",
        "gelu_tanh": "gelu(tanh=True)",
        "reglu": "glu(gate=relu)",
        "relu2": "squared_relu",
        "relu_squared": "squared_relu",
        "swiglu": "glu(gate=silu)",
    },
    "Backend": {
        "cudnn": "fused",
        "flash": "fused",
        "flash_attention": "fused",
        "memory_efficient": "chunked",
        "splash": "fused",
    },
    "BlockLayout": {"gpt_j": "parallel", "palm": "parallel"},
    "FeedForward": {
        "experts": "top_k",
        "ffn": "dense",
        "mlp": "dense",
        "moe": "top_k",
        "swiglu": "dense(activation=glu(gate=silu))",
    },
    "Heads": {"diff": "differential", "mla": "latent"},
    "Mixer": {
        "gdn": "gated_deltanet",
        "gqa": "attention(num_heads=8, num_kv_heads=2)",
        "mha": "attention",
        "mla": "attention(heads=latent)",
        "mqa": "attention(num_kv_heads=1)",
        "retnet": "attention(normalizer=retention, inner_norm=groupnorm)",
    },
    "Norm": {"layer_norm": "layernorm", "ln": "layernorm", "rms": "rmsnorm", "rms_norm": "rmsnorm"},
    "Normalizer": {"softmax": "none", "softmax1": "softmax_one"},
    "Objective": {
        "causal_lm": "next_token",
        "clm": "next_token",
        "masked_lm": "masked_token",
        "mlm": "masked_token",
        "mtp": "multi_token",
        "prefix_lm": "prefix_token",
        "seq2seq": "sequence_to_sequence",
    },
    "Position": {
        "cope": "contextual",
        "fox": "forgetting",
        "nope": "none",
        "rotary": "rope",
        "sincos": "sinusoidal",
        "t5": "t5_bias",
    },
    "Residual": {
        "mhc": "manifold_hyper",
        "post_ln": "post",
        "post_norm": "post",
        "pre_ln": "pre",
        "pre_norm": "pre",
    },
    "Schedule": {"inverse_sqrt": "inverse_square_root", "rsqrt": "inverse_square_root", "trapezoidal": "wsd"},
}
"""Text forms by family and word."""
