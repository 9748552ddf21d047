"""What an emulated board boots, made from Debian's packages."""
