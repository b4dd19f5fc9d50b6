"""The terminal and the machine: lines of progress, Ctrl-C, memory."""
