from experiments.bases import on_text
from transformer.positions.absolute import Sinusoidal
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim
from transformer.study.probes import LongerText

CLAIM = Claim(
    text="On longer texts than in training ALiBi stays as good, sinusoids and rotary positions do not.",
    family="positions",
    source="Press et al. 2021, arXiv:2108.12409, table 2 and figure 1",
    published=(
        "WikiText-103, trained at 512, tested at 3,072: sinusoids collapse after 20 to 50 more tokens, rotary "
        "positions after 100 to 200."
    ),
    expected={"sinusoidal": "worse", "rope": "worse"},
    recipe="Sinusoids with embeddings multiplied by √d.",
    study=on_text(
        "alibi_longer",
        {
            "alibi": {"model.position": ALiBi()},
            "sinusoidal": {"model.position": Sinusoidal()},
            "rope": {"model.position": RoPE()},
        },
        probes=(LongerText(4),),
        metric="loss at 4x length",
    ),
)
