"""Predicted against measured, always on points that were not fitted where there are any."""
