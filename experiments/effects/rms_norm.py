"""RMSNorm against LayerNorm (Zhang and Sennrich 2019)."""

from experiments.bases import longer, on_bases
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="RMSNorm is as good as LayerNorm.",
    family="norms",
    source="Zhang and Sennrich 2019, arXiv:1910.07467, table 2; Narang et al. 2021, arXiv:2102.11972",
    published=(
        "RNNSearch, newstest2014 and 2017: BLEU 22.4 and 23.7 against 22.6 and 23.6. T5-base (Narang et al.): early "
        "loss 2.167 (sd .008) against 2.182 (.005), 1.821 against 1.838 at the end."
    ),
    losses=(1.821, 1.838),
    expected={"plain": "not worse", "modern": "not worse"},
    study=on_bases("rms_norm", {"model.norm": RMSNorm()}, {"model.norm": LayerNorm()}),
)
LONGER = longer(CLAIM)
