"""Rotary against learned positions (Su et al. 2021)."""

from experiments.bases import longer, on_bases
from transformer.positions.absolute import Learned
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Rotary positions are better than learned ones.",
    family="positions",
    source="Su et al. 2021 (RoFormer), arXiv:2104.09864 (from memory); Narang et al. 2021, arXiv:2102.11972",
    published=(
        "T5-base (Narang et al.), with a relative bias in place of rotary positions: early loss 2.197, learned ones "
        "2.245 (sd .005), 1.832 and 1.865 at the end. RoFormer, WMT14 en-de: BLEU 27.5 against 27.3 for sinusoids "
        "(from memory)."
    ),
    losses=(1.832, 1.865),
    expected={"plain": "better", "modern": "better"},
    study=on_bases("rotary", {"model.position": RoPE()}, {"model.position": Learned()}),
)
LONGER = longer(
    CLAIM,
    found=(
        "Ahead by .094 and .067, where it was .220 and .221 after a quarter of the steps: more than half of that "
        "was who learns sooner."
    ),
)
