"""Schedules, one a file: a new file here is a new schedule (docs/extend.md)."""
