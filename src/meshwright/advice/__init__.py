"""What to change of a run: single changes by what each gives, the best two and three together, what
explains a measured time, and the changed keys of its file.
"""
