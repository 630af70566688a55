"""What libgemm is inside a framework: one folder each. Nothing of the base package imports them, nor a framework."""
