from experiments.bases import on_bases
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="RMSNorm is as good as LayerNorm.",
    family="norms",
    source="Zhang and Sennrich 2019, arXiv:1910.07467, table 2",
    published=(
        "RNNSearch, newstest2014 and 2017: BLEU 22.4 and 23.7 against 22.6 and 23.6; T5-base (Narang et al. "
        "2021): early loss 2.167 against 2.182."
    ),
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("rms_norm", {"model.norm": RMSNorm()}, {"model.norm": LayerNorm()}),
)
