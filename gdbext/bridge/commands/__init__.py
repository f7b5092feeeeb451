"""Commands run: parsed, answered, printed."""
