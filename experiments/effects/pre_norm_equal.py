"""Post-norm in shallow models (Takase et al. 2022)."""

from experiments.bases import on_bases
from transformer.residuals.residual import PostNorm
from transformer.study.claim import Claim

CLAIM = Claim(
    text="At two layers and with warm-up post-norm is no worse than pre-norm.",
    family="residuals",
    source="Takase et al. 2022, arXiv:2206.00330; Nguyen and Salazar 2019, arXiv:1910.05895, tables 3 and 6",
    published=(
        "WMT en-de, 6 + 6 layers: post-norm ahead of pre-norm, 18 + 18: it fails. Nguyen and Salazar: 27.58 and "
        "26.83 BLEU on WMT14 en-de, but pre-norm .27 ahead on five small pairs."
    ),
    expected={"plain": "not worse", "modern": "not worse"},
    recipe="50 steps of warm-up.",
    study=on_bases("pre_norm_equal", {"model.residual": PostNorm()}),
    found=(
        "With rates of .004, .008 and .016 and four seeds post-norm is behind in the plain base by .067 [.034, .100], "
        "at .004. In the modern base it takes .008 there and is ahead by .102 [.047, .156], while the grid of this "
        "claim ends at .004. Longer warm-up was not tried."
    ),
)
