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
        "18 layers of width 32, 50 steps of warm-up. All begin with Xavier values, DeepNorm's multiplied by its β, as "
        "in the paper."
    ),
    study=on_text(
        "deep_norm",
        {
            "post": {"model.residual": PostNorm()},
            "deepnorm": {"model.residual": DeepNorm()},
            "rezero": {"model.residual": ReZero()},
        },
        {"model.num_layers": 18, "model.d_model": 32, "model.initializer": Xavier(), "model.feed_forward.d_ff": 128},
        learning_rates=(1e-3, 4e-3),
    ),
    found=(
        "Post-norm trains at 18 layers too, best at the lower of its two rates. ReZero, whose branches begin at 0, is "
        "behind it after 500 steps, at the highest rate tried; Narang et al. find it behind pre-norm too. Longer "
        "training was not tried."
    ),
)
