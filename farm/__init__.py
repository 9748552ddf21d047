"""Boards, the transports that reach them, the jobs that run there, and what was measured."""
