from experiments.bases import on_task
from transformer.data.tasks.rewriting import Copy
from transformer.positions.absolute import Learned
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Without positions attention copies longer texts than it was trained on better than with them.",
    family="positions",
    source="Kazemnejad et al. 2023, arXiv:2305.19466, figure 2",
    published=(
        "Mean reciprocal rank over tasks at up to twice the length: no positions .69, T5 .55, ALiBi .50, rotary "
        ".33, learned .22."
    ),
    expected={"learned": "worse", "rope": "worse", "alibi": "worse"},
    study=on_task(
        "nope_length",
        Copy(items=8),
        {
            "none": {"model.position": None},
            "learned": {"model.position": Learned()},
            "rope": {"model.position": RoPE()},
            "alibi": {"model.position": ALiBi()},
        },
        {"model.num_layers": 3, "steps": 1000, "batch_size": 16},
        test=Copy(items=12),
        metric="accuracy",
    ),
)
