"""Firmware for emulated microcontrollers: a compiled program that trains on host files."""
