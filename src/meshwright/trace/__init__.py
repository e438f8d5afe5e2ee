"""Counts any PyTorch model by one run on tensors with shapes but no values, for families that no
table covers.
"""
