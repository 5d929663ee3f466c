"""PEGASUS (Zhang J. et al. 2019)."""

from transformer.positions.absolute import Sinusoidal
from transformer.pretrained import bart, mbart
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import fixed, same
from transformer.residuals.residual import PreNorm

PEGASUS = Architecture(
    names=("PegasusForConditionalGeneration",),
    model_type="pegasus",
    base=bart.BASE.replace(residual=PreNorm(), position=Sinusoidal(interleaved=False)),
    fields=(
        same("vocab_size", "vocab_size", "source_vocab_size", default=50_265),
        fixed("normalize_embedding", False),
        fixed("static_position_embeddings", True),
        *bart.normalized(before=True),
        *bart.FIELDS,
    ),
    neutral=bart.NEUTRAL,
    rows=(bart.TABLE, *mbart.ROWS),
    renames=bart.RENAMES,
    ignored=r"model\.(encoder|decoder)\.embed_positions\.weight",
)
