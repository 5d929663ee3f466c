from experiments.bases import on_bases
from transformer.mixers.attention.exclusive import XSA
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Taking out of attention what a token says to itself (XSA) is better.",
    family="attention",
    source="XSA 2026; marin: load-bearing, nanochat: not worth it",
    published="Practitioners disagree.",
    expected={"plain": "better", "modern": "better"},
    study=on_bases("exclusive_attention", {"model.mixer.parts": (XSA(),)}),
)
