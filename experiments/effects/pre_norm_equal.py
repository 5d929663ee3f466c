from experiments.bases import on_bases
from transformer.residuals.residual import PostNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="At two layers and with warm-up post-norm is no worse than pre-norm.",
    family="residuals",
    source="Takase et al. 2022, arXiv:2206.00330",
    published="WMT en-de, 6 + 6 layers: post-norm ahead of pre-norm; 18 + 18: it fails.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("pre_norm_equal", {"model.residual": PostNorm()}),
)
