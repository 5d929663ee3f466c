from experiments.bases import on_task, recurrent
from transformer.data.tasks.mad import SelectiveCopying
from transformer.mixers.recurrent.linear_attention import LightningAttention
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Copying what is scattered needs decays that depend on the input.",
    family="recurrences",
    source="Gu and Dao 2023 (Mamba), arXiv:2312.00752, table 1",
    published="Selective copying of 16 tokens of 4,096: 18.3 with S4, 97.0 with S6.",
    expected={"selective": "better"},
    study=on_task(
        "selection",
        SelectiveCopying(alphabet=8, sequence_length=32, items=6),
        {"fixed decays": recurrent(LightningAttention()), "selective": recurrent(Mamba2())},
        {"steps": 800},
        metric="accuracy",
        match="parameters",
    ),
)
