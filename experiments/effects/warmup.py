"""Warm-up with post-norm and pre-norm (Xiong et al. 2020)."""

from experiments.bases import on_text
from transformer.core.parameters import Xavier
from transformer.residuals.residual import PostNorm
from transformer.runs.rules import AdamW
from transformer.study.claim import Claim

POST = {"model.residual": PostNorm()}
WITHOUT = {"optimizer.warmup_steps": 0}
DEEP = {
    "model.num_layers": 8,
    "model.d_model": 32,
    "model.feed_forward.d_ff": 128,
    "model.initializer": Xavier(),
    "optimizer.rule": AdamW(beta2=0.98),
    "optimizer.warmup_steps": 150,
}
POST_ALONE = {"post-norm, without": 1.0, "post-norm": -1.0}
PRE_ALONE = {"pre-norm, without": 1.0, "pre-norm": -1.0}
INTERACTION = {**POST_ALONE, "pre-norm, without": -1.0, "pre-norm": 1.0}
"""How much more post-norm loses without warm-up than pre-norm does."""
CLAIM = Claim(
    text="Post-norm needs warm-up, pre-norm does not.",
    family="residuals",
    source="Xiong et al. 2020, arXiv:2002.04745, sections 3.2 and 4.2",
    published=(
        "IWSLT14 de-en, 6 + 6 layers: post-norm BLEU 8.45 without warm-up, about 34 with it; pre-norm about 34 without."
    ),
    expected={"post-norm": "worse", "pre-norm": "not worse", "interaction": "worse"},
    recipe=(
        "Xavier initial values and β₂ = .98 as there; AdamW; 8 layers of width 32, 150 steps of warm-up in place of "
        "4,000."
    ),
    study=on_text(
        "warmup",
        {
            "post-norm": POST,
            "post-norm, without": {**POST, **WITHOUT},
            "pre-norm": {},
            "pre-norm, without": WITHOUT,
        },
        DEEP,
        contrasts={"post-norm": POST_ALONE, "pre-norm": PRE_ALONE, "interaction": INTERACTION},
        learning_rates=(1.5e-3, 3e-3, 6e-3),
        margin=0.1,
    ),
    found=(
        "With one rate for all, .006, post-norm without warm-up is behind by 1.07. It takes a quarter of that rate, "
        "and is then behind by .24: what needs warm-up here is a high rate. Pre-norm takes the highest rate with "
        "warm-up and without, and is behind by about the margin."
    ),
)
