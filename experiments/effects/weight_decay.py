"""Weight decay on a text that is read once (Loshchilov and Hutter 2017)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Weight decay lowers the loss of a text that is read about once.",
    family="optimizers",
    source=(
        "Loshchilov and Hutter 2017, arXiv:1711.05101; modded-nanogpt, 2024; Andriushchenko et al. 2023, "
        "arXiv:2310.04415 (from memory)"
    ),
    published=(
        "Images, 100 to 1,800 epochs: AdamW's test error is 15 % lower than that of Adam with L2. modded-nanogpt, "
        "124M: no decay is best. One epoch of text: decay lowers the training loss (from memory)."
    ),
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "Decay of .1, multiplied by the rate, against none; 500 steps read a third of the text of then, 2,000 "
        "steps read it 1.2 times."
    ),
    study=on_bases("weight_decay", {"optimizer.weight_decay": 0.1}, {"optimizer.weight_decay": 0.0}),
)
LONGER = longer(CLAIM)
