"""Ordinal processes: start, output, shutdown, lifeline. Knows neither pytest nor verdicts."""
