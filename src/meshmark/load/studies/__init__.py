"""Studies: scenarios that alternate, are repeated and compared. One module per study."""
