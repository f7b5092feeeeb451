"""The user's expressions, and what names mean in them."""
