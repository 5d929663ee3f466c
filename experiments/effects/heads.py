"""Four heads against one (Vaswani et al. 2017)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Four heads are better than one.",
    family="attention",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 6.2 and table 3, rows A",
    published=(
        "WMT14 en-de: one head is .9 BLEU worse than the best number of heads, at equal operations. Shazeer 2019 "
        "(arXiv:1911.02150), table 1: dev log-perplexity 1.518 with one head of 128, 1.424 with eight, at equal "
        "parameters."
    ),
    losses=(1.424, 1.518),
    expected={"plain": "better", "modern": "better"},
    recipe="One head of 64 or four of 16.",
    study=on_bases("heads", {"model.mixer.num_heads": 4}, {"model.mixer.num_heads": 1}),
)
LONGER = longer(
    CLAIM,
    found=(
        "Four heads gain with time: in the plain base .032, where nothing was told early, and .072 for .031 in the "
        "modern one (.063 with fresh seeds). The single head takes .001 there, the lowest tried, so some of the .072 "
        "may be its rate."
    ),
)
