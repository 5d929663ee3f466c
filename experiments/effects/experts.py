"""A mixture of experts at equal operations (Fedus, Zoph and Shazeer 2021)."""

from experiments.bases import longer, on_bases
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
        "GELU networks of the same width in both bases; 8 experts in every layer, where the paper has 128 in every "
        "second one; no token is dropped; the same loss for unequal loads. Sixteen seeds at once, because none of the "
        "first eight of the plain base is one of its bad runs."
    ),
    study=on_bases(
        "experts",
        {"model.feed_forward": TopKExperts(num_experts=8, top=1, d_ff=256)},
        {"model.feed_forward": FeedForward(d_ff=256)},
        seeds=16,
    ),
    found=(
        "Not refuted by this: 128,000 characters are few for eight experts of one token each, and the router has no "
        "noise here."
    ),
)
LONGER = longer(CLAIM)
