"""Firmware for emulated microcontrollers: a compiled program that trains on files of the host."""
