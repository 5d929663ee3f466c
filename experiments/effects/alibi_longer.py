"""ALiBi, sinusoids and rotary positions on longer texts (Press, Smith and Lewis 2021)."""

from experiments.bases import on_text
from transformer.positions.absolute import Sinusoidal
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim
from transformer.study.probes import LongerText

CLAIM = Claim(
    text="On longer texts than in training ALiBi stays as good, sinusoids and rotary positions do not.",
    family="positions",
    source="Press, Smith and Lewis 2021, arXiv:2108.12409, abstract",
    published=(
        "ALiBi of 1.3B, trained at 1,024, tested at 2,048: the perplexity of sinusoids that were trained at 2,048. "
        "WikiText-103: sinusoids collapse 20 to 50 tokens past the length of training, rotary positions after 100 "
        "to 200."
    ),
    expected={"sinusoidal": "worse", "rope": "worse"},
    recipe=(
        "Trained at 32 characters, tuned by the loss there; the rise is the loss at the characters after them, up to "
        "128, less that at those before. Sinusoids with embeddings multiplied by √d."
    ),
    study=on_text(
        "alibi_longer",
        {
            "alibi": {"model.position": ALiBi()},
            "sinusoidal": {"model.position": Sinusoidal()},
            "rope": {"model.position": RoPE()},
        },
        probes=(LongerText(4, rise=True),),
        metric="rise of loss at 4x length",
        tuned_by="loss",
        learning_rates=(2e-3, 4e-3, 8e-3),
    ),
)
