"""Dropout on a text that is read once (Liu H. et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Dropout makes a text that is read about once harder to learn.",
    family="training",
    source="Liu H., Bauer and Manning 2025, Drop Dropout on Single-Epoch Language Model Pretraining, arXiv:2505.24788",
    published="BERT, and Pythia of 160M and 1.4B, one epoch: better without dropout (as reported by others).",
    expected={"plain": "worse", "modern": "worse"},
    recipe="Dropout of .1; 500 steps read a third of the text of then, 2,000 steps read it 1.2 times.",
    study=on_bases("dropout", {"model.dropout": 0.1}),
)
LONGER = longer(
    CLAIM,
    found=(
        "In the plain base it costs more than after a quarter of the steps, .127 for .099; in the modern one it is "
        ".067 for .058, which is no change that is told."
    ),
)
