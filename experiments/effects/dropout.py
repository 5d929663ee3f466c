"""Dropout on a text that is read once (Liu H. et al. 2025)."""

from experiments.bases import longer, on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Dropout makes a text that is read once harder to learn.",
    family="training",
    source="Liu H., Bauer and Manning 2025, Drop Dropout on Single-Epoch Language Model Pretraining, arXiv:2505.24788",
    published="BERT, and Pythia of 160M and 1.4B, one epoch: better without dropout (as reported by others).",
    expected={"plain": "worse", "modern": "worse"},
    recipe="Dropout of .1; 500 steps read 128,000 characters, about a third of the text.",
    study=on_bases("dropout", {"model.dropout": 0.1}),
)
LONGER = longer(
    CLAIM,
    found="It grows: .127 after .099 in the plain base, .067 after .058 in the modern one.",
)
