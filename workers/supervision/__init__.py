"""The process tree of `up`: who runs, who is started again, and how it ends."""
