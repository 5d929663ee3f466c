from experiments.bases import on_bases
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Dropout makes a text that is read once harder to learn.",
    family="training",
    source="Liu H. et al. 2025, Drop Dropout on Single-Epoch Language Model Pretraining, arXiv:2505.24788",
    published="Pythia 160M and 1.4B: better without it.",
    expected={"plain": "worse", "modern": "worse"},
    study=on_bases("dropout", {"model.dropout": 0.1}),
)
