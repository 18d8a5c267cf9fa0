"""A job on many machines: each node examines itself and leaves one document; the documents are judged together.

There is no daemon: launchers (Slurm, an Indexed Job, torchrun, MPI, ssh) only start processes, and what these exchange
are files in a folder that all nodes share, or lines on their stdout.
"""
