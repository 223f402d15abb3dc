"""The attention operator and what belongs to it: the front door for NumPy and PyTorch arrays."""
