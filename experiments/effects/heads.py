from experiments.bases import on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Four heads are better than one.",
    family="attention",
    source="Vaswani et al. 2017, arXiv:1706.03762, table 3, rows A",
    published="newstest2013: one head .9 BLEU worse than eight.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("heads", {"model.mixer.num_heads": 4}, {"model.mixer.num_heads": 1}),
)
