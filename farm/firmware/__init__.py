"""Firmware for emulated microcontrollers: programs that train on files of the host."""
