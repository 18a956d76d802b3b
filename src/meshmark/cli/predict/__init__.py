"""Commands that profile programs and predict from profiles."""
