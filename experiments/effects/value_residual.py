"""ResFormer's value residual (Zhou Z. et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.sharing import ValueResidual
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Adding the values of the first layer to those of the others (ResFormer) is better.",
    family="residuals",
    source="Zhou Z. et al. 2024, arXiv:2410.17897, abstract",
    published=(
        "The loss of a transformer with 16.11 % fewer parameters or 20.3 % less data. 8 layers, best form: 2.682 "
        "against 2.739; at 1.2B within noise, by Zhao Y. et al. 2026, arXiv:2605.20798 (as reported by others)."
    ),
    losses=(2.682, 2.739),
    speed=1 / (1 - 0.203),
    expected={"plain": "better", "modern": "better"},
    recipe="Two layers, so that the second alone is changed; both weights trained, from 1/2.",
    study=on_bases("value_residual", {"model.mixer.sharing": ValueResidual()}),
)
LONGER = longer(
    CLAIM,
    found=(
        "The lead in the modern base, .048 after a quarter of the steps, is gone, and the plain one is behind by .022."
    ),
)
