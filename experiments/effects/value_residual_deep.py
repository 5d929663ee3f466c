"""ResFormer's value residual in as many layers as its paper has."""

from experiments.bases import in_eight_layers
from experiments.effects.value_residual import CLAIM as SHALLOW
from transformer.mixers.attention.sharing import ValueResidual
from transformer.study.claim import Claim

RESIDUAL = {"model.mixer.sharing": ValueResidual()}
CLAIM = Claim(
    text="In eight layers adding the values of the first to those of the others (ResFormer) is better.",
    family="residuals",
    source=SHALLOW.source,
    published=SHALLOW.published,
    losses=SHALLOW.losses,
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "Eight layers, as in the paper's comparison of forms, here of width 32 and 2,000 steps; both weights of every "
        "layer trained, from 1/2. `value_residual` has two layers, of which it changes one."
    ),
    study=in_eight_layers("value_residual_deep", "value_residual", RESIDUAL),
    found=(
        "Depth makes the difference: with two layers it is behind by .02 in the plain base after as many steps, and "
        "no different in the modern one. With the first seeds the plain base is open for runs that end badly at .016, "
        "the highest rate tried, which it takes; at .008, that of the base without it, it is ahead by .022 there too."
    ),
)
