"""A mixture of experts at equal operations (Fedus, Zoph and Shazeer 2021)."""

from experiments.bases import LONGER_RATES, longer, on_bases
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Experts, of which a token takes one, are better at equal operations.",
    family="feed-forward networks",
    source="Fedus, Zoph and Shazeer 2021 (Switch transformers), arXiv:2101.03961, table 1",
    published=(
        "T5-base, 100k steps: negative log-perplexity -1.554 with 128 experts (capacity 2.0), -1.731 without. "
        "nanochat: better a step, worse in time."
    ),
    losses=(1.554, 1.731),
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "GELU networks of the same width in both bases; 4 experts in every layer, where the paper has 128 in every "
        "second one, and batches of 1,024 characters, a quarter for each expert; the same loss for unequal loads and "
        "no other; no token is dropped."
    ),
    study=on_bases(
        "experts",
        {"model.feed_forward": TopKExperts(num_experts=4, top=1, router_z=0.0, d_ff=256), "batch_size": 32},
        {"model.feed_forward": FeedForward(d_ff=256), "batch_size": 32},
        learning_rates=LONGER_RATES,
    ),
    found=(
        "Nothing gained, where the paper gains a tenth of the loss. It was asked first of 8 experts in batches of 256 "
        "characters, 32 for each, and with a second loss, for large logits: behind by .041 and .020, with sixteen "
        "fresh seeds by .027 and .016, of which one was told. Eight times as many characters for each expert change "
        "that little. It was not asked after more steps, when parameters may be what is missing, and the router has no "
        "noise here."
    ),
)
LONGER = longer(CLAIM)
