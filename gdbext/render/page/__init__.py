"""The page of ``report``: one file of HTML that needs nothing else, made of the JSON document that it holds.

Nothing here is loaded by a command that draws nothing. Jinja2 writes every text of the target, escaped.
"""
