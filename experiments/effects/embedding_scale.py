from experiments.bases import on_text
from transformer.core.parameters import Normal
from transformer.positions.absolute import Sinusoidal
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Sinusoids need embeddings multiplied by √d.",
    family="embeddings",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.4",
    published="Stated without a number.",
    expected={"unscaled": "worse"},
    study=on_text(
        "embedding_scale",
        {
            "scaled": {"model.position": Sinusoidal()},
            "unscaled": {
                "model.position": Sinusoidal(),
                "model.embedding.scaled": False,
                "model.embedding.initializer": Normal(0.02),
            },
        },
    ),
)
