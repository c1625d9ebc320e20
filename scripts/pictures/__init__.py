"""The pictures of the book: kit.py draws, sources.py has the values, and each other file draws one theme."""
