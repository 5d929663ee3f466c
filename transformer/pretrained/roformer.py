"""RoFormer (Su et al. 2021): BERT with rotary positions."""

from transformer.core.errors import ConfigError
from transformer.positions.rotary import RoPE
from transformer.pretrained import bert
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import Field, fixed, same


def _narrow() -> Field:
    """The width of the table, which has to be that of the model."""

    def read(fields):
        width = fields.get("hidden_size", 768)
        if (found := fields.get("embedding_size")) not in (None, width):
            raise ConfigError(f"embedding_size: {found} is not supported, only hidden_size, {width}")
        return {}

    return Field(("embedding_size",), read, lambda config: {"embedding_size": config.d_model})


ROFORMER = Architecture(
    names=("RoFormerForMaskedLM",),
    model_type="roformer",
    base=bert.BERT.base.replace(position=RoPE(interleaved=True)),
    fields=(
        same("vocab_size", "vocab_size", default=50_000),
        *bert.FIELDS[1:],
        same("max_position_embeddings", "max_length", default=1536),
        *bert.HEAD_FIELDS,
        _narrow(),
        fixed("rotary_value", False),
    ),
    neutral=bert.NEUTRAL,
    rows=(*bert.rows("roformer", bert.OUTPUT), *bert.MASKED_ROWS),
    renames=bert.RENAMES,
    ignored=r"roformer\.encoder\.embed_positions\.weight",
)
