"""A softmax that may attend to nothing (Miller 2023; Xiao et al. 2023)."""

import math

from experiments.bases import longer, on_bases
from transformer.mixers.attention.normalizers import SoftmaxOne
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A softmax that may attend to nothing has the same loss.",
    family="attention",
    source="Miller 2023, Attention is off by one (web essay); Xiao et al. 2023, arXiv:2309.17453, table 3",
    published=(
        "160M trained from the start, streaming with a cache of 1,024: perplexity 18.05 with softmax and two first "
        "tokens kept, 18.01 with a trained sink and one; about as good with this one and four (from memory)."
    ),
    losses=(math.log(18.01), math.log(18.05)),
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("softmax_one", {"model.mixer.normalizer": SoftmaxOne()}),
)
LONGER = longer(CLAIM)
