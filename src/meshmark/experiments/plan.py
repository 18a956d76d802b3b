"""The request that experiments and ratings share: a command, its settings, its limits and its figure of merit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from meshmark.experiments.figure import FigureOfMerit
from meshmark.experiments.setting import Setting


@dataclass(slots=True, kw_only=True)
class SettingsPlan(ABC):
    """A command that runs under several settings.

    Attributes:
        seed: Seed of the order of the runs.
        budget_s: Time in s for all runs, including warm-up and shell commands.
        timeout_s: Time limit of one run in s; None for the budget.
        margin: Smallest relative difference that matters.
        pattern, metric, better: See `figure.FigureOfMerit`.
        restore: Shell command that runs at the end; "" if there is no such command.
        run: Name of the run in the store.
        started: Time of the start, ISO 8601, UTC.
    """

    command: list[str]
    seed: int
    budget_s: float
    timeout_s: float | None
    margin: float
    pattern: str
    metric: str
    better: str
    restore: str
    run: str
    started: str

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Setting]:
        """Return the settings by label.

        Raises:
            UsageError: A setting is invalid.
        """

    @property
    def figure(self) -> FigureOfMerit:
        """Return how the figure of merit is read from the output of a run."""
        return FigureOfMerit(self.pattern, self.metric, self.better)
