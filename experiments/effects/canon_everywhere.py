"""Canon layers at all four places, with and without positions (Allen-Zhu 2025)."""

from experiments.bases import PLAIN, USUAL, longer
from experiments.effects.canon import CANON, NOPE, ROTARY
from transformer.activations.activation import GELU
from transformer.feed_forwards.canon import CanonFeedForward
from transformer.mixers.attention.short_convolution import CanonA, CanonB
from transformer.study.claim import Claim
from transformer.study.study import Study

EVERYWHERE = {
    "model.mixer.parts": (CanonA(), CanonB()),
    "model.feed_forward": CanonFeedForward(activation=GELU(), d_ff=256),
}
CLAIM = Claim(
    text="With Canon layers at all four places a model without positions is as good as one with rotary ones.",
    family="attention",
    source="Allen-Zhu 2025, Physics of Language Models 4.1, arXiv:2512.17351",
    published=(
        "With Canon layers at A, B, C and D a model without positions is as good as one with rotary ones; each of the "
        "four helps, and all together most (as reported by others)."
    ),
    expected={"plain": "better", "than A alone": "better", "in place of rotary": "not worse"},
    recipe=(
        "Four tokens, no activation, a residual connection around each, at the four places of the paper. Text in place "
        "of tasks of reasoning."
    ),
    study=Study(
        "canon_everywhere",
        PLAIN,
        {
            "plain": {},
            "plain, canon": CANON,
            "plain, everywhere": EVERYWHERE,
            "no positions, everywhere": {**NOPE, **EVERYWHERE},
            "rotary": ROTARY,
        },
        contrasts={
            "plain": {"plain, everywhere": 1.0, "plain": -1.0},
            "than A alone": {"plain, everywhere": 1.0, "plain, canon": -1.0},
            "in place of rotary": {"no positions, everywhere": 1.0, "rotary": -1.0},
        },
        **USUAL,
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "The four together are four times what A alone is, .197 of loss against .047, at 4 % more parameters; without "
        "positions they are ahead of rotary ones by .111. Half of the lead after 500 steps lasts, .197 of .405. "
        "In 32 characters what is near is much of what can be learned: counts of four characters have 1.320."
    ),
)
