from experiments.bases import on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Weight decay makes no difference when a text is read once.",
    family="optimizers",
    source="Loshchilov and Hutter 2017, arXiv:1711.05101",
    published="A gain where images are seen for many epochs.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases("weight_decay", {"optimizer.weight_decay": 0.1}, {"optimizer.weight_decay": 0.0}),
)
