"""What leaked: searched for, grouped, reported."""
