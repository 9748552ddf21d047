"""A step of decoders on one core by MobileFineTuner and by ours."""
