"""Measures the machine it runs on: kernels of one rank, collectives of several, and what the engine
costs beside them.
"""
