"""Boot images of emulated boards, made from Debian's packages."""
