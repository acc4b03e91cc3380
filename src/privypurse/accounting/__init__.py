"""What releases cost: numbers in, numbers out. No data, no randomness."""
