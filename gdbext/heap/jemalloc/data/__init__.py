"""Facts that were recorded, as JSON; a package so that a wheel holds them."""
