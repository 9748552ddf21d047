"""Boards, the transports to them, the jobs that run there, and their measurements."""
