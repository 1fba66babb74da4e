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
        """Bound a launch inside an isolated test by what is left of that test's time.

        Args:
            seconds: until the limit of the test strikes.
        """
        # Never 0, which means no limit.
        left = max(seconds, 0.01)
        return replace(self, timeout=min(self.timeout, left) if self.timeout else left)

    def around(self) -> Limits:
        """The limits of an isolated test that launches: its ordinals are stopped first, and their verdict is told."""
        return replace(self, timeout=self.timeout + 2 * self.grace + 1) if self.timeout else self
