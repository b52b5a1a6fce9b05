"""Ways from a reader into other frameworks, one module each; none is imported before it is asked for.

arrays: all examples as NumPy arrays, which the others build on
arrow, pandas: tables
torch, grain, tensorflow: what their own loaders take, with ``epochs`` to tell which epoch a process of theirs reads
"""
