"""A random order of so many places that nobody has to hold: the place of the i-th is computed.

A Feistel network is a permutation of all numbers of 2 b bits whatever its round function is (Luby
and Rackoff 1988); numbers that fall outside are sent through again until they fall inside ("cycle
walking", Black and Rogaway 2002), at most 4 times on average.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUNDS = 6
"""4 make it as good as its round function (Luby and Rackoff); two more cost a microsecond."""
MASK = 2**64 - 1


def splitmix64(x: int) -> int:
    """64 bits, each of which depends on all of x (SplitMix64, Steele et al. 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@dataclass(frozen=True)
class Shuffle:
    """A random order of 0 .. count - 1."""

    count: int
    seed: int
    epoch: int

    def __getitem__(self, i: int) -> int:
        """The place of the i-th."""
        half = max(1, ((self.count - 1).bit_length() + 1) // 2)
        low = (1 << half) - 1
        keys = [
            splitmix64(splitmix64(splitmix64(self.seed) ^ self.epoch) + n)
            for n in range(ROUNDS)
        ]
        while True:
            left, right = i >> half, i & low
            for key in keys:
                left, right = right, left ^ (splitmix64(key ^ right) & low)
            i = left << half | right
            if i < self.count:
                return i
