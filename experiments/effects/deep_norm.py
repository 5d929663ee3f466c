"""Post-norm, DeepNorm and ReZero in 18 layers (Wang H. et al. 2022; Bachlechner et al. 2020)."""

from experiments.bases import on_text
from transformer.core.parameters import Xavier
from transformer.residuals.residual import DeepNorm, PostNorm
from transformer.residuals.scaled_branches import ReZero
from transformer.study.claim import Claim

CLAIM = Claim(
    text="In 18 layers DeepNorm and ReZero are ahead of post-norm.",
    family="residuals",
    source=(
        "Wang H. et al. 2022, arXiv:2203.00555, abstract; Bachlechner et al. 2020 (ReZero), arXiv:2003.04887, abstract"
    ),
    published=(
        "DeepNorm: 1,000 layers train; 200 layers of 3.2B parameters are 5 BLEU ahead of 48 layers of 12B. ReZero: "
        "over 100 layers train, but T5-base is worse with it than with pre-norm, 2.262 against 2.182 (Narang et al. "
        "2021)."
    ),
    expected={"deepnorm": "better", "rezero": "better"},
    recipe=(
        "18 layers of width 32, 50 steps of warm-up. Xavier values, DeepNorm's multiplied by its β, as in the paper; "
        "with post-norm and ReZero what is added to the stream begins a sixth as large, as elsewhere here."
    ),
    study=on_text(
        "deep_norm",
        {
            "post": {"model.residual": PostNorm()},
            "deepnorm": {"model.residual": DeepNorm()},
            "rezero": {"model.residual": ReZero()},
        },
        {"model.num_layers": 18, "model.d_model": 32, "model.initializer": Xavier(), "model.feed_forward.d_ff": 128},
        learning_rates=(5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
    ),
    found=(
        "Which is ahead depends on the rates. With .001 and .004 alone ReZero was told behind post-norm; it takes "
        ".008, the highest of five, where it still gains, and post-norm .001, where one doubling is worth .3, three "
        "times the difference: its best seeds at .002 are ahead of ReZero, its worst far behind. Post-norm trains at "
        "18 layers because of that sixth: with plain Xavier values two seeds stayed at 3.2 and more at rates from "
        ".00025 to .002."
    ),
)
