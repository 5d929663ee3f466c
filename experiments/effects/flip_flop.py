from experiments.bases import on_task, recurrent
from transformer.data.tasks.flip_flop import FlipFlop
from transformer.mixers.recurrent.elementwise import MinGRU
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Attention errs now and then where it has to remember one bit; recurrences do not.",
    family="recurrences",
    source="Liu B. et al. 2023, Exposing Attention Glitches with Flip-Flop Language Modeling, arXiv:2306.00946",
    published=(
        "Trained with a share of .8 to ignore, tested with .98: errors of transformers do not vanish; an LSTM has none."
    ),
    expected={"recurrence": "better"},
    study=on_task(
        "flip_flop",
        FlipFlop(instructions=24, ignore=0.8),
        {"attention": {"model.position": RoPE()}, "recurrence": recurrent(MinGRU())},
        {"steps": 800, "batch_size": 16},
        test=FlipFlop(instructions=24, ignore=0.95),
        metric="accuracy",
        match="parameters",
        margin=0.01,
    ),
)
