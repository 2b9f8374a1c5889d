"""The second intermediate form and the algorithms that lower to it; see ``select.ALGORITHMS``."""
