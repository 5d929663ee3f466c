from experiments.bases import MODERN, on_text
from transformer.mixers.attention.gates import OutputGate
from transformer.mixers.attention.normalizers import SoftmaxOne
from transformer.study.claim import Claim
from transformer.study.probes import FirstKey

CLAIM = Claim(
    text="A gate on the output of attention takes away the mass on the first token.",
    family="attention",
    source="Qiu et al. 2025, arXiv:2505.06708, figure 2",
    published="Share of attention on the first token 46.7 % without, 4.8 % with a gate.",
    expected={"gate": "better", "softmax_one": "better"},
    study=on_text(
        "sinks",
        {
            "softmax": MODERN,
            "gate": {**MODERN, "model.mixer.parts": (OutputGate(),)},
            "softmax_one": {**MODERN, "model.mixer.normalizer": SoftmaxOne()},
        },
        probes=(FirstKey(),),
        metric="mass on the first token",
    ),
)
