"""Decoder training steps on one core: MobileFineTuner and PockEngine."""
