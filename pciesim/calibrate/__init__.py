"""From measurements to parameters: joint robust fits, intervals, and checks on points that were not fitted."""
