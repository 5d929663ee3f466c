"""DyT in place of norms (Zhu J. et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.norms.without_statistics import DyT
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A tanh with a trained slope (DyT) is as good as a norm.",
    family="norms",
    source="Zhu J. et al. 2025, arXiv:2503.10622, table 4",
    published=(
        "LLaMA on 200B tokens of the Pile, training loss with DyT and RMSNorm: 1.60 and 1.59 at 7B, 1.54 and 1.53 "
        "at 13B, equal at 34B and 70B. nanochat at depth 12: worse in every variation."
    ),
    losses=(1.60, 1.59),
    expected={"plain": "not worse", "modern": "not worse"},
    recipe=(
        "Embeddings multiplied by √d in place of the paper's trained scalar; α begins at .5 everywhere, where the "
        "paper tunes it for language models: of .125, .25, .5, 1, 2 and 4 the second is best in the plain base, by .02 "
        "after 500 steps (three seeds), .06 behind LayerNorm."
    ),
    study=on_bases("dyt", {"model.norm": DyT(), "optimizer.learning_rate": (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)}),
    found=(
        "Of rates up to .032 it takes .008 in place of LayerNorm and .016 in place of RMSNorm, which take .004 and "
        ".002. In a grid up to .004 it seemed behind LayerNorm by .085, and no better than RMSNorm. Most of the lead "
        "over RMSNorm is the embeddings': RMSNorm with those of DyT is ahead of itself by .12 (three seeds), DyT by "
        ".15, and LayerNorm gains from them too (`norm_method` in the experiments)."
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "What it is ahead of RMSNorm early, .152, is gone, and it is further behind LayerNorm, by .177 where it was "
        ".048. It takes .016 of rates up to .032, so neither is for want of a rate. RMSNorm was not given the "
        "embeddings of DyT, so that the verdict in the modern base is of both together."
    ),
)
