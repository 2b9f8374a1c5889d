"""What a result looks like: text, JSON, traces, plots. Nothing is calculated here."""
