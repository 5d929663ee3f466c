"""Marian (Junczys-Dowmunt et al. 2018; the translators of Helsinki-NLP)."""

from transformer.positions.absolute import Sinusoidal
from transformer.pretrained import bart
from transformer.pretrained.architecture import Architecture
from transformer.pretrained.fields import Field, fixed


def _vocabularies() -> Field:
    """The vocabulary: one for both languages, or one for each."""

    def read(fields):
        source, shared = fields.get("vocab_size", 58_101), fields.get("share_encoder_decoder_embeddings", True)
        target = fields.get("decoder_vocab_size") or source
        return {"source_vocab_size": source, "vocab_size": target, "share_embeddings": shared}

    def write(config):
        return {
            "vocab_size": config.source_vocab_size,
            "decoder_vocab_size": config.vocab_size,
            "share_encoder_decoder_embeddings": config.share_embeddings,
        }

    return Field(("vocab_size", "decoder_vocab_size", "share_encoder_decoder_embeddings"), read, write)


MARIAN = Architecture(
    names=("MarianMTModel",),
    model_type="marian",
    base=bart.BASE.replace(position=Sinusoidal(interleaved=False)),
    fields=(
        _vocabularies(),
        fixed("normalize_embedding", False),
        fixed("static_position_embeddings", True),
        *bart.normalized(before=False),
        *bart.FIELDS,
    ),
    neutral=bart.NEUTRAL,
    rows=(bart.TABLE, *bart.ROWS),
    renames=bart.RENAMES,
    ignored=r"model\.(encoder|decoder)\.embed_positions\.weight",
)
