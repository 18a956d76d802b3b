"""General claims of publications: their catalogue, and the methods that test them on a machine."""
