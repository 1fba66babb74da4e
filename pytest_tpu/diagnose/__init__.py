"""Pure decisions: states of the ordinals in, verdict and text out. No clock, no process, no pytest."""
