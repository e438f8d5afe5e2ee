"""Time: work becomes seconds, by a chip, a network and what overlaps. One algorithm of a
collective a file of `collectives`."""
