"""RoBERTa (Liu Y. et al. 2019) and XLM-R (Conneau et al. 2019): masked language models, and classifiers of texts."""

from collections.abc import Iterator

from transformer.embeddings.embedding import Head
from transformer.embeddings.head_transforms import DenseTransform
from transformer.models.classifier import ClassifierConfig
from transformer.models.config import ModelConfig
from transformer.models.pooling import FirstToken
from transformer.pretrained import bert
from transformer.pretrained.architecture import Architecture, Row, dense
from transformer.pretrained.fields import Field, fixed, same

PADDING = 1
"""Id of the token of padding; positions of other tokens begin after it."""


def _positions() -> Field:
    """The length of texts: as many rows, less those up to the one of padding."""

    def read(fields):
        return {"max_length": fields.get("max_position_embeddings", 512) - PADDING - 1}

    return Field(("max_position_embeddings",), read, lambda c: {"max_position_embeddings": c.max_length + PADDING + 1})


def _fields(vocab_size: int) -> tuple[Field, ...]:
    return (
        same("vocab_size", "vocab_size", default=vocab_size),
        *bert.FIELDS[1:],
        _positions(),
        fixed("pad_token_id", PADDING),
        fixed("position_embedding_type", "absolute"),
    )


def _rows(*output: str) -> Iterator[Row]:
    yield from bert.rows("roberta", *output)
    yield Row("position/table", "roberta.embeddings.position_embeddings.weight", skip=PADDING + 1)


def _masked(name: str, model_type: str, vocab_size: int) -> Architecture:
    return Architecture(
        names=(name,),
        model_type=model_type,
        base=ModelConfig(**bert.BASE, head=Head(transform=DenseTransform(), bias=True)),
        fields=(*_fields(vocab_size), *bert.HEAD_FIELDS),
        neutral=bert.NEUTRAL,
        rows=(*_rows("lm_head.decoder.weight"), *bert.head_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")),
        renames=bert.RENAMES,
        ignored=r"roberta\.(pooler\..*|embeddings\.position_ids)",
    )


def _classifier(name: str, model_type: str, vocab_size: int) -> Architecture:
    return Architecture(
        names=(name,),
        model_type=model_type,
        base=ClassifierConfig(**bert.BASE, pooling=FirstToken()),
        fields=(*_fields(vocab_size), *bert.LABEL_FIELDS),
        neutral=f"{bert.NEUTRAL}|tie_word_embeddings",
        rows=(
            *_rows(),
            Row("pooling_params/kernel", "classifier.dense.weight", "F D -> D F"),
            Row("pooling_params/bias", "classifier.dense.bias"),
            *dense("head", "classifier.out_proj"),
        ),
        renames=bert.RENAMES,
        ignored=r"roberta\.(pooler\..*|embeddings\.position_ids)",
    )


ROBERTA = _masked("RobertaForMaskedLM", "roberta", 50_265)
ROBERTA_CLASSIFIER = _classifier("RobertaForSequenceClassification", "roberta", 50_265)
XLM_ROBERTA = _masked("XLMRobertaForMaskedLM", "xlm-roberta", 30_522)
XLM_ROBERTA_CLASSIFIER = _classifier("XLMRobertaForSequenceClassification", "xlm-roberta", 30_522)
