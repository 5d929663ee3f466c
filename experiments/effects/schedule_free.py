from experiments.bases import on_bases
from transformer.runs.rules import ScheduleFree
from transformer.runs.schedules import ConstantRate, Cosine
from transformer.study.claim import Claim

CLAIM = Claim(
    text="AdamW without a schedule, by averages (schedule-free), is as good as a cosine.",
    family="optimizers",
    source="Defazio et al. 2024, arXiv:2405.15682",
    published="Equal or better on all of their tasks, with nanoGPT among them.",
    expected={"plain": "equal", "modern": "equal"},
    study=on_bases(
        "schedule_free",
        {"optimizer.rule": ScheduleFree(), "optimizer.schedule": ConstantRate()},
        {"optimizer.schedule": Cosine()},
    ),
)
