"""Facts and topology of this host, of captures and of published machines."""
