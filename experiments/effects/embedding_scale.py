"""Embeddings multiplied by √d under sinusoids (Vaswani et al. 2017)."""

from experiments.bases import on_text
from transformer.core.parameters import Normal
from transformer.positions.absolute import Sinusoidal
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Sinusoids need embeddings multiplied by √d.",
    family="embeddings",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.4",
    published=(
        "Stated without a number. Csordás et al. 2021 (arXiv:2108.12284), on PCFG and COGS: dividing the positions "
        "by √d is better still."
    ),
    measured=False,
    expected={"unscaled": "worse"},
    recipe=(
        "Both begin with a deviation of 1/√d, so that what positions are added to begins with one of 1 or of .125. At "
        "first the unscaled arm began with .02, which is most of what was seen then."
    ),
    study=on_text(
        "embedding_scale",
        {
            "scaled": {"model.position": Sinusoidal()},
            "unscaled": {
                "model.position": Sinusoidal(),
                "model.embedding.scaled": False,
                "model.embedding.initializer": Normal(64**-0.5),
            },
        },
    ),
)
