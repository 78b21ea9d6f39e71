"""From what people start engines with today (a script, a unit file, a running process) to a fleet file.

Nothing of it is executed. What cannot be read with certainty is said with file and line, never guessed.
"""
