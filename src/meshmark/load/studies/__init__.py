"""Studies: scenarios that are repeated in turn and compared, a module a study."""
