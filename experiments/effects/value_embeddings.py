from experiments.bases import on_bases
from transformer.mixers.attention.sharing import ValueEmbeddings
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Values from a table of tokens, mixed into those of attention, are better.",
    family="attention",
    source="modded-nanogpt 2024; nanochat 2025: models love them",
    published="Speed records of GPT-2 small keep them.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("value_embeddings", {"model.mixer.sharing": ValueEmbeddings()}),
)
