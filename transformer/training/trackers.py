"""Trackers: a run's rows of metrics.jsonl are shown elsewhere too, while it runs.

metrics.jsonl stays what everything is read from. A tracker that fails is named on standard error and left out, and the
run goes on with the same numbers.
"""

import abc
import contextlib
import dataclasses
import importlib.util
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from transformer.core.errors import ConfigError, one_line
from transformer.core.files import Damaged, read_sealed, write_sealed
from transformer.core.values import Variant
from transformer.runs.config import Replica
from transformer.runs.optimizer import OptimizerConfig

TRACKED = "tracked.json"
"""The file of a run's key."""
Values = Mapping[str, Mapping[str, float]]
"""Numbers by the name of the replica and of the metric."""


@dataclass(frozen=True)
class RunInfo:
    """What a tracker is told of a run."""

    folder: Path
    config: dict[str, Any]
    """The config, as JSON."""
    replicas: tuple[str, ...]
    """Names of the replicas; that of a single one is empty."""
    step: int = 0
    """Steps that are done already, of a run that is resumed."""

    @cached_property
    def key(self) -> str:
        """Names the run for as long as it is resumed; the folder keeps it."""
        path = self.folder / TRACKED
        with contextlib.suppress(FileNotFoundError, Damaged):
            return read_sealed(path)["key"]
        key = secrets.token_hex(4)
        write_sealed(path, {"key": key})
        return key


class TrackedRun(Protocol):
    """A run as a tracker sees it; errors are caught by the one who calls."""

    def log(self, step: int, values: Values) -> None:
        """Take the numbers that were measured at a step."""
        ...

    def end(self, result: Values | None) -> None:
        """Take what the run ended with; None: it was stopped before its end, and may be resumed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tracker(Variant):
    """Where a run is shown, besides metrics.jsonl."""

    package: ClassVar[str] = ""
    """The package that it needs, which is also the name of the extra."""
    title: str = ""
    """Name of the run; empty: that of its folder."""
    group: str = ""
    """Name of the runs that it belongs to; empty: that of the study, if there is one."""

    @abc.abstractmethod
    def start(self, run: RunInfo) -> TrackedRun:
        """Begin to show a run, or go on with it where it is resumed."""

    def within(self, group: str, title: str, folder: Path) -> Self:
        """The tracker for one run of a group, which has a folder, unless it has names of its own."""
        return dataclasses.replace(self, group=self.group or group, title=self.title or title)


class Tracking:
    """The trackers of a run while it runs."""

    def __init__(self, trackers: Sequence[Tracker], run: RunInfo):
        self._run, self._shown, self._result = run, {}, None
        for tracker in trackers:
            self._try(tracker, lambda tracker=tracker: self._shown.update({tracker: tracker.start(run)}))

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(self, *_) -> None:
        self._each(lambda shown: shown.end(self._result))

    def log(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Show rows of metrics.jsonl, all of one step."""
        values = self._by_replica(lines)
        self._each(lambda shown: shown.log(lines[0]["step"], values))

    def finish(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Keep what the run ended with."""
        self._result = self._by_replica(lines)

    def _by_replica(self, lines: Sequence[Mapping[str, Any]]) -> Values:
        """The numbers of rows; what is not finite is None there, and is left out."""
        return {
            self._run.replicas[line["replica"]]: {
                name: value for name, value in line.items() if name not in ("step", "replica") and value is not None
            }
            for line in lines
        }

    def _each(self, action: Callable[[TrackedRun], None]) -> None:
        for tracker, shown in list(self._shown.items()):
            self._try(tracker, lambda shown=shown: action(shown))

    def _try(self, tracker: Tracker, action: Callable[[], None]) -> None:
        """Do something with a tracker; one that fails is left out from then on."""
        try:
            action()
        except Exception as error:  # whatever it is, the run is worth more
            self._shown.pop(tracker, None)
            shows = f"{tracker.name} shows no more, metrics.jsonl goes on ({one_line(error)})"
            print(f"{self._run.folder}: {shows}", file=sys.stderr)


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Raise `ConfigError` where something is no tracker, or the package of one is missing."""
    if not isinstance(trackers, list | tuple):
        raise ConfigError(f"log: {trackers!r} is no list of trackers; [TensorBoard()] is one")
    for tracker in trackers:
        if not isinstance(tracker, Tracker):
            raise ConfigError(f"log: {tracker!r} is no tracker; TensorBoard() is one")
        if tracker.package and importlib.util.find_spec(tracker.package) is None:
            raise ConfigError(f"log: {tracker.package} is missing: pip install 'transformer[{tracker.package}]'")


def replica_names(replicas: Sequence[Replica], optimizer: OptimizerConfig) -> tuple[str, ...]:
    """The numbers in which each replica differs from others: `seed 0, learning rate 0.001`; of one alone, nothing."""
    filled = [dataclasses.asdict(replica.filled(optimizer)) for replica in replicas]
    differing = [name for name in filled[0] if len({each[name] for each in filled}) > 1]
    return tuple(", ".join(f"{name.replace('_', ' ')} {each[name]}" for name in differing) for each in filled)


def series(values: Values) -> Iterator[tuple[str, float]]:
    """(name, number) of each series, such as `loss/seed 0`; of a single replica `loss`."""
    for replica, own in values.items():
        for name, value in own.items():
            yield f"{name}/{replica}" if replica else name, value
