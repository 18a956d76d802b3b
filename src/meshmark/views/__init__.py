"""Everything that a person reads: text in the terminal, charts, reports and pages."""
