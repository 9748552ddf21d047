"""TFLite models; see `importer`."""
