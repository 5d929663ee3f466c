"""Warm-up with post-norm and pre-norm (Xiong et al. 2020)."""

from experiments.bases import on_text
from transformer.core.parameters import Normal, Xavier
from transformer.embeddings.embedding import Embedding
from transformer.positions.absolute import Sinusoidal
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
    "model.scale_residual_init": False,
    "model.embedding": Embedding(initializer=Normal(32**-0.5), scaled=True),
    "model.position": Sinusoidal(),
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
        "Xavier initial values, embeddings of deviation 1/√d times √d with sinusoids, and β₂ = .98, as there; AdamW; 8 "
        "layers of width 32, 150 steps of warm-up in place of 4,000."
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
        learning_rates=(1.5e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2),
    ),
    found=(
        "Post-norm takes .0015 with warm-up and without, the lowest of five rates (two seeds at .00075 were behind), "
        "and is .32 behind pre-norm with warm-up for both, where the paper has them level. Pre-norm takes .012, eight "
        "times as much, with it and without, and loses .047 there: an eighth of what post-norm loses, but more than "
        "the margin. When this was first asked, what is added to the stream began a quarter as large, embeddings were "
        "not those of the paper and positions were trained: pre-norm was .26 behind post-norm, and lost .056."
    ),
)
