"""The page that answers while you type. Thin: it reads questions, calls public functions and
returns their fields.

question (texts as in an address or on a command line) -> answers (the fields of --json)
-> app (HTTP) or page (one file)
"""
