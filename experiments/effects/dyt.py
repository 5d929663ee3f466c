from experiments.bases import on_bases
from transformer.norms.without_statistics import DyT
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A tanh with a trained slope (DyT) is as good as a norm.",
    family="norms",
    source="Zhu J. et al. 2025, arXiv:2503.10622, table 4",
    published="LLaMA 7B on the Pile: training loss 1.60 with DyT, 1.59 with RMSNorm; 34B and 70B equal.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("dyt", {"model.norm": DyT()}),
)
