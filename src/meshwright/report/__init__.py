"""Tables, texts and plots of results. Nothing is computed here: a report shows what a result
holds.
"""
