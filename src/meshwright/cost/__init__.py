"""S2, time: work becomes seconds, by a chip, a network and what overlaps."""
