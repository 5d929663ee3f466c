"""Hyper-connections in more layers than two."""

from experiments.bases import in_eight_layers
from experiments.effects.hyper_connections import CLAIM as SHALLOW
from experiments.effects.hyper_connections import STREAMS
from transformer.study.claim import Claim

CLAIM = Claim(
    text="In eight layers several streams with trained connections (hyper-connections) are better than one.",
    family="residuals",
    source=SHALLOW.source,
    published=SHALLOW.published,
    expected={"plain": "better", "modern": "better"},
    recipe=(
        "Four streams, dynamic, as there; eight layers of width 32 and 2,000 steps, where the paper has 16 layers. "
        "Connections learn at a tenth of the rate of the rest, .0002 to .0016: in the paper all learn at .0004, but "
        "matrices as small as these take more. Initial output matrices are not larger by √n, as there (from memory)."
    ),
    study=in_eight_layers("hyper_connections_deep", "hyper_connections", STREAMS),
    found=(
        "Better in the modern base, by 2.2 % of the loss (fresh: 2.8 %). The plain base is open: with them it takes "
        ".016, the highest rate tried, at which some runs end badly; at .008, that of the base without them, it is "
        "ahead by .023 in the first seeds. With two layers the same slow connections gain nothing that is told "
        "(`hyper_connections`), so it is depth that they need."
    ),
)
