"""Differential attention at equal parameters (Ye et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.mixers.attention.heads import DifferentialHeads
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Differential attention is better at equal parameters.",
    family="attention",
    source="Ye et al. 2024, arXiv:2410.05258, figure 3",
    published=(
        "The loss of a transformer with about 65 % of its parameters or tokens: 6.8B for 11B, 7.8B for 13.1B. The "
        "smallest model tried has 830M."
    ),
    speed=1 / 0.65,
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "Half as many heads as without, each of two maps of the size of a head, as in the paper; λ begins near .8 in "
        "all layers, which makes no difference there (table 6), in deep models. Their formula gives .2 and .36 to two "
        "layers, and is behind in both bases after 500 steps, +.186 [+.142, +.231] and +.132 [+.089, +.175], eight "
        "seeds, where .8 is level: 1 minus it multiplies what is added to the stream. As many heads as without, of two "
        "maps of half the size each, are behind in the plain base after 2,000 steps, +.048 [+.031, +.065]."
    ),
    study=on_bases(
        "differential", {"model.mixer.heads": DifferentialHeads(), "model.mixer.num_heads": 2}, match="parameters"
    ),
)
LONGER = longer(
    CLAIM,
    found=(
        "Behind by .076 in the plain base, and open in the modern one. Half as many heads, as the paper has them, are "
        "two here, and heads are worth something at this width (`heads`)."
    ),
)
