from experiments.bases import on_text
from transformer.residuals.residual import DeepNorm, PostNorm
from transformer.residuals.scaled_branches import ReZero
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Post-norm fails in deep models, DeepNorm does not.",
    family="residuals",
    source="Wang H. et al. 2022, arXiv:2203.00555, abstract",
    published="1,000 layers train; 200 layers of 3.2B parameters are 5 BLEU ahead of 48 layers of 12B.",
    expected={"deepnorm": "better", "rezero": "better"},
    study=on_text(
        "deep_norm",
        {
            "post": {"model.residual": PostNorm()},
            "deepnorm": {"model.residual": DeepNorm()},
            "rezero": {"model.residual": ReZero()},
        },
        {"model.num_layers": 18, "model.d_model": 32, "model.feed_forward.d_ff": 128},
        learning_rates=(1e-3, 4e-3),
    ),
)
