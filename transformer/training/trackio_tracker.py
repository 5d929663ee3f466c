"""Trackio: a run with a series for each replica, in a data base of this machine."""

from dataclasses import dataclass

from transformer.training.trackers import RunInfo, Tracker, Values, series


@dataclass(frozen=True, kw_only=True)
class Trackio(Tracker):
    """A run that `trackio show` shows; needs the extra `trackio`.

    Source: https://huggingface.co/docs/trackio. Its variables of the environment say where the data base is. A run goes
    on under its name, so its key follows the title.
    """

    name = "trackio"
    package = "trackio"
    project: str = "transformer"
    """Name of the project."""

    def start(self, run):
        return _Run(self, run)


class _Run:
    def __init__(self, tracker: Trackio, run: RunInfo):
        import trackio

        self._run = trackio.init(
            project=tracker.project,
            name=f"{tracker.title or run.folder.name} {run.key}",
            group=tracker.group or None,
            config=run.config,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, values: Values) -> None:
        self._run.log(dict(series(values)), step=step)

    def end(self, result: Values | None) -> None:
        self._run.finish()
