"""What the degrees of a layout mean: where ranks lie on the network, which layers a stage holds,
what makes a layout legal.
"""
