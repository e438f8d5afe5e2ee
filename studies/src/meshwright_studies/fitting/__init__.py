"""Shared numbers fitted to published runs, and how sure a prediction is: everything judged on
laboratories that a fit has not seen.
"""
