"""Value embeddings (modded-nanogpt; nanochat)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.sharing import ValueEmbeddings
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Values from a table of tokens, mixed into those of attention, are better.",
    family="attention",
    source="modded-nanogpt, record 14; nanochat, log of trials",
    published=(
        "modded-nanogpt, GPT of 124M: 4.66 minutes to the loss of the record become 4.41. nanochat, gated and on "
        "alternate layers: better by steps, operations and time."
    ),
    speed=4.66 / 4.41,
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "One table for all layers, without gates; modded-nanogpt has one for each of 12 layers, and in nanochat "
        "sharing them failed and gates helped."
    ),
    study=on_bases("value_embeddings", {"model.mixer.sharing": ValueEmbeddings()}),
)
LONGER = longer(
    CLAIM,
    found=(
        "Ahead in both bases, by .015 and .020 (.014 and .023 with fresh seeds), about the margin; .056 in the modern "
        "one at first."
    ),
)
