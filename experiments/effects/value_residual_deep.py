"""ResFormer's value residual in as many layers as its paper has."""

from experiments.bases import MODERN, on_text
from experiments.effects.value_residual import CLAIM as SHALLOW
from transformer.activations.activation import GLU, SiLU
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.sharing import ValueResidual
from transformer.study.claim import Claim

RESIDUAL = {"model.mixer.sharing": ValueResidual()}
NARROW_MODERN = {**MODERN, "model.feed_forward": FeedForward(activation=GLU(gate=SiLU()), d_ff=85)}
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
    study=on_text(
        "value_residual_deep",
        {
            "plain": {},
            "plain, value_residual": RESIDUAL,
            "modern": NARROW_MODERN,
            "modern, value_residual": {**NARROW_MODERN, **RESIDUAL},
        },
        {
            "model.num_layers": 8,
            "model.d_model": 32,
            "model.feed_forward.d_ff": 128,
            "steps": 2000,
            "optimizer.warmup_steps": 200,
        },
        contrasts={
            "plain": {"plain, value_residual": 1.0, "plain": -1.0},
            "modern": {"modern, value_residual": 1.0, "modern": -1.0},
        },
        learning_rates=(2e-3, 4e-3, 8e-3, 1.6e-2),
    ),
    found=(
        "Depth makes the difference: with two layers it is behind by .02 in the plain base after as many steps, and "
        "no different in the modern one. With the first seeds the plain base is open for runs that end badly at .016, "
        "the highest rate tried, which it takes; at .008, that of the base without it, it is ahead by .022 there too."
    ),
)
