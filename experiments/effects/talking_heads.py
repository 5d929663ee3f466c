"""Talking-heads attention (Shazeer et al. 2020)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.normalizers import TalkingHeads
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Heads that mix their scores and weights (talking heads) are better.",
    family="attention",
    source="Shazeer et al. 2020, arXiv:2003.02436, abstract",
    published=(
        "Better perplexity on masked language modeling. T5-base, 12 heads of 64, 524k steps: log-perplexity 1.641 "
        "against 1.678 (from memory)."
    ),
    losses=(1.641, 1.678),
    expected={"plain": "better", "modern": "better"},
    recipe="Four heads of 16.",
    study=on_bases("talking_heads", {"model.mixer.normalizer": TalkingHeads()}),
)
LONGER = longer(CLAIM)
