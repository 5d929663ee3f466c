"""A learning rate of a narrow model in a wide one (Yang G. et al. 2022)."""

from experiments.bases import PLAIN, on_text
from transformer.runs.mup import mup
from transformer.study.claim import Claim

WIDE = PLAIN.replace({"model.d_model": 128, "model.feed_forward.d_ff": 512})
CLAIM = Claim(
    text="At a learning rate tuned on a narrow model a wide one is better with µP than without.",
    family="initial values",
    source=(
        "Yang G. et al. 2022 (Tensor Programs V), arXiv:2203.03466, section 7.4 and table 7; Wortsman et al. 2023, "
        "arXiv:2309.14322, section 3.2.4"
    ),
    published=(
        "GPT-3 of 6.7B with rates tuned at width 256: validation loss 1.98, and 2.03 without, which had other "
        "positions and precision too. Wortsman et al.: the best rate stays in place, the loss is not lower."
    ),
    expected={"mup": "better"},
    recipe="Width 128 at a rate of 8e-3, with and without what µP changes from a base of width 32.",
    study=on_text(
        "mup",
        {"standard": {}, "mup": mup(WIDE, base_width=32)},
        {"model": WIDE.model},
        learning_rates=(8e-3,),
    ),
)
