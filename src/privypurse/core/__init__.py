"""Shared vocabulary: relations, sealed boxes, queries, charges, errors, checks, randomness."""
