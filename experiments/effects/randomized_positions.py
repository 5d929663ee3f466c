from experiments.bases import on_task
from transformer.data.tasks.rewriting import Reverse
from transformer.positions.randomized import Randomized
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Positions drawn at random from a longer range let attention read longer inputs.",
    family="positions",
    source="Ruoss et al. 2023, arXiv:2305.16843, abstract",
    published="15 tasks of the Chomsky hierarchy, trained to length 40: +12.0 points of accuracy at lengths to 500.",
    expected={"randomized": "better"},
    study=on_task(
        "randomized_positions",
        Reverse(items=8),
        {
            "rope": {"model.position": RoPE()},
            "randomized": {"model.position": Randomized(scheme=RoPE(), longest=64)},
        },
        {"model.num_layers": 3, "steps": 1000, "batch_size": 16},
        test=Reverse(items=12),
        metric="accuracy",
    ),
)
