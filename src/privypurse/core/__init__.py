"""The shared words of the house: relations, sealed boxes, queries, charges, errors, checks, randomness."""
