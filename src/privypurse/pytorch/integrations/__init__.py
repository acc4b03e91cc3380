"""The engine in other frameworks, and logs of public values; frameworks are imported on use."""
