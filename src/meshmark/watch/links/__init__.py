"""The loads of links: what topology and traffic predict, what a recording shows, and what the difference means."""
