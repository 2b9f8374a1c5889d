"""What if: outcomes of many configurations, their differences, and what is best."""
