from experiments.bases import on_task, recurrent
from transformer.data.tasks.rewriting import Copy
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A transformer copies strings that a state of fixed size does not hold.",
    family="recurrences",
    source="Jelassi et al. 2024, Repeat After Me, arXiv:2402.01032, figure 1",
    published="Copying up to 300 characters: transformers learn it from a hundredth of the examples that Mamba needs.",
    expected={"mamba2": "worse"},
    study=on_task(
        "copying",
        Copy(items=16, alphabet=26),
        {"attention": {"model.position": RoPE()}, "mamba2": recurrent(Mamba2())},
        {"steps": 800, "batch_size": 16},
        metric="accuracy",
        match="parameters",
    ),
)
