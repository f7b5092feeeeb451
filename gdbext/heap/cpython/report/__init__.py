"""What commands and findings say."""
