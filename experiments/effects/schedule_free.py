"""Schedule-free AdamW against a cosine (Defazio et al. 2024)."""

from experiments.bases import longer, on_bases
from transformer.runs.rules import ScheduleFree
from transformer.runs.schedules import ConstantRate, Cosine
from transformer.study.claim import Claim

CLAIM = Claim(
    text="AdamW without a schedule, by averages (schedule-free), is as good as a cosine.",
    family="optimizers",
    source="Defazio et al. 2024, arXiv:2405.15682, abstract",
    published="As good as tuned schedules or better, from logistic regression to language models.",
    expected={"plain": "not worse", "modern": "not worse"},
    recipe="A tenth of the steps is warm-up in both arms; the cosine ends at 0.",
    study=on_bases(
        "schedule_free",
        {"optimizer.rule": ScheduleFree(), "optimizer.schedule": ConstantRate()},
        {"optimizer.schedule": Cosine(final=0.0)},
    ),
    found="It is ahead.",
)
LONGER = longer(
    CLAIM,
    found=(
        "Ahead by .102 and .059, where it was .160 and .115 after a quarter of the steps. A straight line to 0 is "
        "ahead of this cosine by .028 and .016 (`linear_decay`), so some of the lead is the cosine's."
    ),
)
