"""Work: what one device computes, moves, sends and keeps for one microbatch of one layer.
Counted once, exactly.
"""
