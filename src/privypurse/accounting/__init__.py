"""Privacy accounting: filters, accountants and calibration. No data, no randomness."""
