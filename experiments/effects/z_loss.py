"""z-loss (Chowdhery et al. 2022; Wortsman et al. 2023)."""

from experiments.bases import longer, on_bases
from transformer.objectives.objective import NextToken
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A small penalty on the normalizer of the softmax (z-loss) costs nothing.",
    family="objectives",
    source=(
        "Chowdhery et al. 2022 (PaLM), arXiv:2204.02311, section 5; Wortsman et al. 2023, arXiv:2309.14322, section "
        "3.1.2 and figures 3 and 4"
    ),
    published=(
        "PaLM: 1e-4, found to make training stable, without an ablation. Wortsman et al.: without it and without "
        "weight decay logits drift at high rates, at every size."
    ),
    measured=False,
    expected={"plain": "not worse", "modern": "not worse"},
    recipe="Weight decay of .1 and rates around the best one: the price is asked, not the gain.",
    study=on_bases("z_loss", {"objective": NextToken(z_loss=1e-4)}),
)
LONGER = longer(CLAIM)
