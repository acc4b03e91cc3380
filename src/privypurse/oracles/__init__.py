"""[RAW DATA] The only holders of private records. They hand out sealed boxes and nothing else."""
