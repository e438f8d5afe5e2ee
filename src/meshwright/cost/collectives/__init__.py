"""Algorithms of collectives, one a file: the file's name is the word of
`NetworkTime.collective`, and a new file is a new algorithm (docs/extend.md).
"""
