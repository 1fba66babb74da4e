"""The times that bound one launch."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long one launch may take, in seconds.

    Args:
        timeout: from the start of the launch to the last word of its ordinals; 0 means no limit.
        stall_timeout: how long ordinals may wait in a collective for one that does nothing; 0 means no limit.
        grace: between one signal and the next harsher one; how long a process may linger idle after its body, and
            how long the others may go on when one has failed.
    """

    timeout: float = 300.0
    stall_timeout: float = 60.0
    grace: float = 2.0

    def within(self, seconds: float) -> Limits:
        """Bound a launch that has to end, and its verdict to be told, before an outer limit strikes.

        Args:
            seconds: until the outer limit.

        Returns:
            The same, with a time limit that leaves room to stop the world: two graces and a second, or half of what is
            left where that is less.
        """
        room = max(seconds - 2 * self.grace - 1, seconds / 2)
        return replace(self, timeout=min(self.timeout, room) if self.timeout else room)
