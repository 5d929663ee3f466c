"""Exclusive self-attention (Zhai 2026)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.exclusive import XSA
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Taking out of attention what a token says to itself (XSA) is better.",
    family="attention",
    source="Zhai 2026, arXiv:2603.09078; modded-nanogpt, record 82; nanochat, log of trials",
    published=(
        "modded-nanogpt, with a trained gate on six layers: 30 of 1,480 steps fewer to the same loss. nanochat, on "
        "the deepest three layers: better a step, not in time."
    ),
    speed=1480 / 1450,
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "On all layers and without a gate, as the paper defines it; the first token then gets nothing from attention."
    ),
    study=on_bases("exclusive_attention", {"model.mixer.parts": (XSA(),)}),
)
LONGER = longer(
    CLAIM,
    found=(
        "It lasts in the plain base, .037 of .042; in the modern one a fifth of the lead is left, .015 of .083, and "
        "fresh seeds tell none."
    ),
)
