"""The vision transformer (Dosovitskiy et al. 2020)."""

from transformer.activations.activation import GELU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.attention import Attention
from transformer.models.images import VisionConfig
from transformer.models.pooling import ClassToken
from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained.architecture import Architecture, Row, dense, norm
from transformer.pretrained.fields import ACTIVATIONS, BIASES, Field, attention_bias, choice, labels, same

_LAYER = "vit.encoder.layer.{layer}"


def _image() -> Field:
    """The size of images: one side of a square, or height and width."""

    def read(fields):
        size = fields.get("image_size", 224)
        height, width = (size, size) if isinstance(size, int) else size
        return {"image_size": (height, width, fields.get("num_channels", 3))}

    def write(config):
        height, width, channels = config.image_size
        return {"image_size": height if height == width else [height, width], "num_channels": channels}

    return Field(("image_size", "num_channels"), read, write)


VIT = Architecture(
    names=("ViTForImageClassification",),
    model_type="vit",
    base=VisionConfig(
        mixer=Attention(bias=BIASES),
        norm=LayerNorm(),
        position=Learned(),
        feed_forward=FeedForward(activation=GELU(), bias=True),
        pooling=ClassToken(),
    ),
    fields=(
        _image(),
        same("patch_size", "patch_size", default=16),
        same("hidden_size", "d_model", default=768),
        same("num_hidden_layers", "num_layers", default=12),
        same("num_attention_heads", "mixer.num_heads", default=12),
        same("intermediate_size", "feed_forward.d_ff", default=3072),
        same("layer_norm_eps", "norm.eps", default=1e-12),
        choice("hidden_act", "feed_forward.activation", ACTIVATIONS, default="gelu"),
        attention_bias("qkv_bias", default=True, always=("out",)),
        labels(),
    ),
    neutral=r"encoder_stride|pooler_\w+",
    rows=(
        Row("pooling_params/token", "vit.embeddings.cls_token", "1 1 D -> D"),
        Row("position/table", "vit.embeddings.position_embeddings", "1 L D -> L D"),
        Row("embedding/projection/kernel", "vit.embeddings.patch_embeddings.projection.weight", "D C Y X -> (Y X C) D"),
        Row("embedding/projection/bias", "vit.embeddings.patch_embeddings.projection.bias"),
        *norm("blocks/attention_residual/norms/input", f"{_LAYER}.layernorm_before"),
        *dense("blocks/attention/query", f"{_LAYER}.attention.attention.query"),
        *dense("blocks/attention/key", f"{_LAYER}.attention.attention.key"),
        *dense("blocks/attention/value", f"{_LAYER}.attention.attention.value"),
        *dense("blocks/attention/out", f"{_LAYER}.attention.output.dense"),
        *norm("blocks/feed_forward_residual/norms/input", f"{_LAYER}.layernorm_after"),
        *dense("blocks/feed_forward/branches/0", f"{_LAYER}.intermediate.dense"),
        *dense("blocks/feed_forward/out", f"{_LAYER}.output.dense"),
        *norm("final_norm", "vit.layernorm"),
        *dense("head", "classifier"),
    ),
    ignored=r"vit\.pooler\..*",
)
