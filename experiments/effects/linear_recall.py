from experiments.bases import RECALL, on_task, recurrent
from transformer.data.tasks.recall import AssociativeRecall
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Linear attention does not recall pairs that softmax attention does.",
    family="attention",
    source="Arora et al. 2023 (Zoology), arXiv:2312.04927, figure 2",
    published="MQAR: attention solves every setting at every width, recurrences with a small state do not.",
    expected={"linear": "worse"},
    study=on_task(
        "linear_recall",
        AssociativeRecall(alphabet=32, sequence_length=24),
        {"softmax": {}, "linear": recurrent(LinearAttention())},
        RECALL,
        match="parameters",
    ),
)
