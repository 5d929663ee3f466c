from experiments.bases import on_bases
from transformer.residuals.residual import PeriNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A norm also after each sublayer (Peri-LN) is better than pre-norm.",
    family="residuals",
    source="Kim J. et al. 2025, arXiv:2502.02732",
    published="400M to 3.2B parameters, 30B tokens: lower loss and fewer divergences than pre- and post-norm.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("peri_norm", {"model.residual": PeriNorm()}),
)
