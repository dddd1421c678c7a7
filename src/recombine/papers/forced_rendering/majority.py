"""A share of networks as an effect: how far it is from a half."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from recombine.reproduction.intervals import CONFIDENCE, Interval, Share


@dataclass(frozen=True)
class Majority:
    """A share of networks, less a half; with Wilson's interval.

    >>> Majority.of([1, 1, 1, 0]).value
    0.25
    """

    share: Share

    @classmethod
    def of(cls, values: ArrayLike) -> Majority:
        """Of networks for which a value is 1, of those for which it is 0 or 1."""
        return cls(Share.of(values))

    @property
    def value(self) -> float:
        """The share less a half."""
        return self.share.value - 0.5

    @property
    def networks(self) -> int:
        """How many there are."""
        return self.share.networks

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """The share's, less a half."""
        own = self.share.interval(confidence)
        return Interval(own.value - 0.5, own.low - 0.5, own.high - 0.5, own.networks)

    def tail(self, bound: float) -> float:
        """The share's."""
        return self.share.tail(bound + 0.5)
