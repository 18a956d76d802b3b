"""General statements of the literature: their catalogue, and the methods that test them on a machine."""
