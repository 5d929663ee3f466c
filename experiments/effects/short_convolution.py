"""Short convolutions in attention (So et al. 2021)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.short_convolution import ShortConvolution
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A short convolution of queries, keys and values makes learning faster.",
    family="attention",
    source="So et al. 2021 (Primer), arXiv:2109.08668, abstract",
    published=(
        "Most of Primer's gain is due to this and squared ReLU: together with smaller changes, a T5 of 500M on C4 "
        "costs a quarter as much to train."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe="Without squared ReLU; convolutions that begin as the identity.",
    study=on_bases("short_convolution", {"model.mixer.parts": (ShortConvolution(),)}),
)
LONGER = longer(CLAIM)
