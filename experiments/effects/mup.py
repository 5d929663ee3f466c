from experiments.bases import PLAIN, on_text
from transformer.runs.mup import mup
from transformer.study.claim import Claim

WIDE = PLAIN.replace({"model.d_model": 128, "model.feed_forward.d_ff": 512})
CLAIM = Claim(
    text="At a learning rate tuned on a narrow model a wide one is better with µP than without.",
    family="initial values",
    source="Yang G. et al. 2022, arXiv:2203.03466, figure 1",
    published="Width 128 to 8,192: with standard scaling the best rate falls with the width, with µP it stays.",
    expected={"mup": "better"},
    study=on_text(
        "mup",
        {"standard": {}, "mup": mup(WIDE, base_width=32)},
        {"model": WIDE.model},
        learning_rates=(8e-3,),
    ),
)
