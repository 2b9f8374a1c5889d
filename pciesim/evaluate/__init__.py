"""Two evaluators of one Program, and schedules in time."""
