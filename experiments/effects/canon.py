"""Canon layers, with and without positions (Allen-Zhu 2025)."""

import dataclasses

from experiments.bases import longer, on_bases
from transformer.mixers.attention.short_convolution import CanonA
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

ROTARY = {"model.position": RoPE()}
CANON = {"model.mixer.parts": (CanonA(),)}
NOPE = {"model.position": None}
STUDY = on_bases("canon", CANON)
CLAIM = Claim(
    text="Canon layers before attention make learning faster, and repair a model without positions.",
    family="attention",
    source="Allen-Zhu 2025, Physics of Language Models 4.1, arXiv:2512.17351",
    published=(
        "With Canon layers a model without positions is as good as one with rotary ones, and reasons 2 to 4 times "
        "as deep on synthetic tasks (as reported by others)."
    ),
    expected={"plain": "better", "modern": "better", "without positions": "better", "in place of rotary": "not worse"},
    recipe=(
        "Canon at A alone, before attention, where the paper has it at four places, A to D. Text in place of tasks "
        "of reasoning."
    ),
    study=dataclasses.replace(
        STUDY,
        arms={**STUDY.arms, "no positions": NOPE, "no positions, canon": {**NOPE, **CANON}, "rotary": ROTARY},
        contrasts={
            **STUDY.contrasts,
            "without positions": {"no positions, canon": 1.0, "no positions": -1.0},
            "in place of rotary": {"no positions, canon": 1.0, "rotary": -1.0},
        },
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "A third of the lead lasts in the plain base, .047 of .134, and half in the modern one, .044 of .083; without "
        "positions it doubles, .466 after .233. In place of rotary positions it is behind by .052, at A alone: "
        "with all four places of the paper it is ahead (canon_everywhere)."
    ),
)
