"""What to change in a run: single changes by their gain, the best pair and triple, what explains a
measured time, and the changed keys of the run's file.
"""
