"""mBART (Liu Y. et al. 2020): BART with norms before sublayers."""

from transformer.norms.norm import LayerNorm
from transformer.positions.absolute import Learned
from transformer.pretrained import bart
from transformer.pretrained.architecture import Architecture, norm
from transformer.pretrained.fields import fixed, same
from transformer.residuals.residual import PreNorm

ROWS = (
    bart.BIAS,
    *bart.side("encoder", where="input"),
    *bart.side("decoder", where="input"),
    *norm("encoder/final_norm", "model.encoder.layer_norm"),
    *norm("decoder/final_norm", "model.decoder.layer_norm"),
)

MBART = Architecture(
    names=("MBartForConditionalGeneration",),
    model_type="mbart",
    base=bart.BASE.replace(residual=PreNorm(), position=Learned(), embedding_norm=LayerNorm()),
    fields=(
        same("vocab_size", "vocab_size", "source_vocab_size", default=50_265),
        fixed("normalize_embedding", True),
        fixed("static_position_embeddings", False),
        *bart.normalized(before=True),
        *bart.FIELDS,
    ),
    neutral=bart.NEUTRAL,
    rows=(*bart.EMBEDDINGS, *ROWS),
    renames=bart.RENAMES,
)
